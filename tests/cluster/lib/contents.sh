# Loads images, creates volumes and installs the chart in the running cluster.
# shellcheck shell=bash

kubectl_admin() { "$programs/kubectl" --kubeconfig="$state/kubeconfig" "$@"; }

# load_images ARCHIVE...: imports OCI archives of `docker/build`, unless they are loaded already.
load_images() {
  local archive known
  for archive in "$@"; do
    known=$state/etc/$(basename "$archive").digest
    [ "$(digest_of "$archive")" != "$(cat "$known" 2>/dev/null)" ] || continue
    on_machine ctr --namespace k8s.io images import - <"$archive" >/dev/null
    digest_of "$archive" >"$known"
  done
}
digest_of() { tar --extract --to-stdout --file "$1" index.json | sha256sum | cut -c 1-32; }

# Creates a default StorageClass with local volumes. Released volumes are emptied and reused.
create_volumes() {
  local index name
  while read -r name; do
    kubectl_admin delete persistentvolume "$name" >/dev/null
    rm -rf "${state:?}/var/lib/volumes/$name"
  done < <(kubectl_admin get persistentvolume \
    -o 'jsonpath={range .items[?(@.status.phase=="Released")]}{.metadata.name}{"\n"}{end}')
  {
    cat <<END
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: local
  annotations: {storageclass.kubernetes.io/is-default-class: "true"}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
END
    for ((index = 0; index < volume_count; ++index)); do
      mkdir -p "$state/var/lib/volumes/volume-$index"
      volume "volume-$index"
    done
  } | kubectl_admin apply --server-side -f - >/dev/null
}

volume() {
  cat <<END
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: $1}
spec:
  capacity: {storage: 20Gi}
  accessModes: [ReadWriteOnce, ReadOnlyMany, ReadWriteMany]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: local
  local: {path: /var/lib/volumes/$1}
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [$node]}]
END
}

# Installs the chart, which includes the CRD, in the cluster of the kubeconfig $1.
install_operator() {
  local chart=$checkout/charts/tilewright options=(--namespace tilewright-system --create-namespace --set pytorchjobs.enabled=true)
  local image=$state/etc/tilewright-controller.tar.digest
  # A changed image with the same name must restart the pods.
  if [ "$1" = "$state/kubeconfig" ] && [ -e "$image" ]; then
    options+=(--set-string "podAnnotations.tilewright\.dev/image=$(cat "$image")")
  fi
  # Another cluster pulls the images with the prefix TILEWRIGHT_IMAGES, as in the tests.
  if [ "$1" != "$state/kubeconfig" ] && [ -n "${TILEWRIGHT_IMAGES:-}" ]; then
    local version
    version=$(sed -n 's/^appVersion: *"\?\([^"]*\)"\?$/\1/p' "$chart/Chart.yaml")
    options+=(--set "image.repository=${TILEWRIGHT_IMAGES}tilewright-controller"
      --set "workerImage=${TILEWRIGHT_IMAGES}tilewright-worker:$version")
  fi
  local output
  output=$("$programs/helm" --kubeconfig="$1" upgrade --install tilewright "$chart" "${options[@]}" --wait \
    --timeout 120s 2>&1) || die "the chart could not be installed: $output"
}
