# The node's programs and what they read: containerd, the pods' network, kubelet, kube-proxy.
# shellcheck shell=bash

etc=$state/etc

start_containerd() {
  # restrict_oom_score_adj: without CAP_SYS_RESOURCE no process may have its score lowered.
  # disable_apparmor: profiles are the whole kernel's, and the one that containerd loads would stay with the host.
  cat >"$etc/containerd.toml" <<END
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/library/tilewright-pause:1"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$inside/etc/cni"
END
  # Each pod has a link of its own and no bridge, so that a service's answers are always routed, and translated.
  mkdir -p "$etc/cni"
  cat >"$etc/cni/10-tilewright.conflist" <<END
{"cniVersion": "0.4.0", "name": "tilewright", "plugins": [
  {"type": "ptp", "ipam": {"type": "host-local", "dataDir": "/run/cni", "ranges": [[{"subnet": "$pod_range"}]],
                           "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
END
  start_program containerd containerd --config $inside/etc/containerd.toml
}

start_kubelet() {
  cat >"$etc/kubelet.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: $inside/keys/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: $inside/keys/kubelet-server.crt
tlsPrivateKeyFile: $inside/keys/kubelet-server.key
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /$(cgroup_name "$(machine_number)")
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
clusterDNS: [$dns_service]
clusterDomain: cluster.local
resolvConf: ""   # the host's name servers cannot be reached from here
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%}
imageGCHighThresholdPercent: 100   # images were loaded by hand and cannot be pulled again
cpuManagerPolicy: static           # a Guaranteed pod of whole CPUs has them to itself
kubeReserved: {cpu: 100m}          # the policy wants something kept, and keeps a whole CPU that is nobody's own
END
  start_program kubelet /run/programs/kubelet --config=$inside/etc/kubelet.yaml \
    --kubeconfig=$inside/keys/kubelet.kubeconfig --hostname-override="$node" --node-ip="$(machine_address)" \
    --node-labels="$node_label"
}

start_kube_proxy() {
  cat >"$etc/kube-proxy.yaml" <<END
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
clientConnection: {kubeconfig: $inside/keys/kube-proxy.kubeconfig}
hostnameOverride: $node
clusterCIDR: $pod_range
oomScoreAdj: 0
conntrack:   # the table's size is the host's to set; the times cannot be set before some rule has loaded the module
  {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
END
  start_program kube-proxy /run/programs/kube-proxy --config=$inside/etc/kube-proxy.yaml
}
