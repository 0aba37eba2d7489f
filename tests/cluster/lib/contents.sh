# What the cluster holds once it runs: images, volumes, the CRD or the whole chart.
# shellcheck shell=bash

ours() { "$programs/kubectl" --kubeconfig="$state/kubeconfig" "$@"; }

# load_images ARCHIVE...: OCI archives, as `docker/build` writes them.
load_images() {
  local archive
  for archive in "$@"; do
    on_machine ctr --namespace k8s.io images import - <"$archive" >/dev/null
  done
}

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

# The operator by its chart, which brings the CRD; without a chart the CRD alone.
install_operator() {
  if [ -e "$checkout/charts/tilewright/Chart.yaml" ]; then
    "$programs/helm" --kubeconfig="${1:-$state/kubeconfig}" upgrade --install tilewright "$checkout/charts/tilewright" \
      --namespace tilewright-system --create-namespace --wait --timeout 120s
  else
    "$programs/kubectl" --kubeconfig="${1:-$state/kubeconfig}" apply --server-side \
      -f "$checkout/crds/trainjobs.tilewright.dev.yaml"
  fi
}
