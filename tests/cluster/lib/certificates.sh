# Creates the certificate authority, the server and client certificates and the kubeconfigs.
# shellcheck shell=bash

keys=$state/keys

new_key() { openssl ecparam -name prime256v1 -genkey -noout -out "$keys/$1.key" 2>/dev/null; }

make_authority() {
  new_key ca
  openssl req -x509 -key "$keys/ca.key" -days 3650 -subj /CN=tilewright-cluster -out "$keys/ca.crt"
}

# issue NAME SUBJECT [ALTERNATIVE,...]: creates NAME.crt and NAME.key. The API server reads CN as
# the user and O as the group.
issue() {
  new_key "$1"
  openssl req -new -key "$keys/$1.key" -subj "$2" |
    openssl x509 -req -CA "$keys/ca.crt" -CAkey "$keys/ca.key" -days 3650 -out "$keys/$1.crt" -extfile <(
      echo "extendedKeyUsage=clientAuth,serverAuth"
      [ -z "${3:-}" ] || echo "subjectAltName=$3"
    ) 2>/dev/null
}

make_certificates() {
  local address
  address=$(machine_address)
  make_authority
  issue api-server /CN=kube-apiserver "IP:$address,IP:127.0.0.1,IP:$api_service,DNS:localhost,DNS:kubernetes,\
DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local"
  issue api-server-to-kubelet /O=system:masters/CN=kube-apiserver-kubelet-client
  issue kubelet-server "/CN=$node" "IP:$address,DNS:$node"
  issue kubelet "/O=system:nodes/CN=system:node:$node"
  issue kube-controller-manager /CN=system:kube-controller-manager
  issue kube-scheduler /CN=system:kube-scheduler
  issue kube-proxy /CN=system:kube-proxy
  issue admin /O=system:masters/CN=admin
  new_key service-accounts
  openssl ec -in "$keys/service-accounts.key" -pubout -out "$keys/service-accounts.pub" 2>/dev/null
  local user
  for user in kubelet kube-controller-manager kube-scheduler kube-proxy admin; do
    write_kubeconfig "$user" "https://$address:6443" >"$keys/$user.kubeconfig"
  done
  cp "$keys/admin.kubeconfig" "$state/kubeconfig"
}

# Embeds the certificates, so that the file can be copied to another machine.
write_kubeconfig() {
  cat <<END
apiVersion: v1
kind: Config
clusters:
- name: tilewright
  cluster:
    server: $2
    certificate-authority-data: $(base64 -w 0 "$keys/ca.crt")
users:
- name: $1
  user:
    client-certificate-data: $(base64 -w 0 "$keys/$1.crt")
    client-key-data: $(base64 -w 0 "$keys/$1.key")
contexts:
- name: tilewright
  context: {cluster: tilewright, user: $1}
current-context: tilewright
END
}
