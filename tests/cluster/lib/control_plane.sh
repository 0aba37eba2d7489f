# Control plane: etcd, API server, controller manager and scheduler with their flags.
# shellcheck shell=bash

start_etcd() { # --unsafe-no-fsync: the data need not survive a power failure
  start_program etcd /run/programs/etcd --name=cluster --data-dir=/var/lib/etcd \
    --listen-client-urls=http://127.0.0.1:2379 --advertise-client-urls=http://127.0.0.1:2379 \
    --listen-peer-urls=http://127.0.0.1:2380 --initial-advertise-peer-urls=http://127.0.0.1:2380 \
    --initial-cluster=cluster=http://127.0.0.1:2380 --unsafe-no-fsync
}

start_kube_apiserver() {
  local keys=$inside/keys
  start_program kube-apiserver /run/programs/kube-apiserver --etcd-servers=http://127.0.0.1:2379 \
    --secure-port=6443 --advertise-address="$(machine_address)" --service-cluster-ip-range="$service_range" \
    --tls-cert-file=$keys/api-server.crt --tls-private-key-file=$keys/api-server.key \
    --client-ca-file=$keys/ca.crt --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
    --service-account-issuer=https://kubernetes.default.svc \
    --service-account-key-file=$keys/service-accounts.pub \
    --service-account-signing-key-file=$keys/service-accounts.key \
    --kubelet-certificate-authority=$keys/ca.crt --kubelet-preferred-address-types=InternalIP \
    --kubelet-client-certificate=$keys/api-server-to-kubelet.crt \
    --kubelet-client-key=$keys/api-server-to-kubelet.key --allow-privileged --profiling=false
}

start_kube_controller_manager() {
  local keys=$inside/keys
  start_program kube-controller-manager /run/programs/kube-controller-manager --leader-elect=false \
    --kubeconfig=$keys/kube-controller-manager.kubeconfig --use-service-account-credentials \
    --service-account-private-key-file=$keys/service-accounts.key --root-ca-file=$keys/ca.crt --profiling=false
}

start_kube_scheduler() {
  start_program kube-scheduler /run/programs/kube-scheduler --leader-elect=false \
    --kubeconfig=$inside/keys/kube-scheduler.kubeconfig --profiling=false
}
