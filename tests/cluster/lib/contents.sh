# What the cluster holds once it runs: images, volumes, the CRD or the whole chart.
# shellcheck shell=bash

ours() { "$programs/kubectl" --kubeconfig="$state/kubeconfig" "$@"; }

# load_images ARCHIVE...: OCI archives, as `docker/build` writes them. What is there already is not loaded again.
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

# A default class of local volumes, so that a plain claim is bound. One that was released is emptied and offered again.
offer_volumes() {
  local index name
  while read -r name; do
    ours delete persistentvolume "$name" >/dev/null
    rm -rf "${state:?}/var/lib/volumes/$name"
  done < <(ours get persistentvolume \
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
  } | ours apply --server-side -f - >/dev/null
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

# The operator by its chart, which brings the CRD; in the cluster of the kubeconfig $1.
install_operator() {
  local chart=$checkout/charts/tilewright options=(--namespace tilewright-system --create-namespace)
  local image=$state/etc/tilewright-controller.tar.digest
  # Another image under the same name shall replace the pods of the one before.
  if [ "$1" = "$state/kubeconfig" ] && [ -e "$image" ]; then
    options+=(--set-string "podAnnotations.tilewright\.dev/image=$(cat "$image")")
  fi
  # Another cluster pulls them; by whose name, TILEWRIGHT_IMAGES says, as to the tests.
  if [ "$1" != "$state/kubeconfig" ] && [ -n "${TILEWRIGHT_IMAGES:-}" ]; then
    local version
    version=$(sed -n 's/^appVersion: *"\?\([^"]*\)"\?$/\1/p' "$chart/Chart.yaml")
    options+=(--set "image.repository=${TILEWRIGHT_IMAGES}tilewright-controller"
      --set "workerImage=${TILEWRIGHT_IMAGES}tilewright-worker:$version")
  fi
  local said
  said=$("$programs/helm" --kubeconfig="$1" upgrade --install tilewright "$chart" "${options[@]}" --wait \
    --timeout 120s 2>&1) || die "the chart could not be installed: $said"
}
