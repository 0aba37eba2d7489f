# Node: containerd, the pod network, kubelet and kube-proxy with their configuration.
# shellcheck shell=bash

etc=$state/etc

start_containerd() {
  # restrict_oom_score_adj: lowering a score requires CAP_SYS_RESOURCE.
  # disable_apparmor: profiles are global to the kernel; containerd's would remain on the host.
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
  # ptp instead of a bridge: replies of a Service are always routed, so NAT applies to them.
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
resolvConf: ""   # the host's name servers are unreachable from the machine
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%}
imageGCHighThresholdPercent: 100   # images are loaded manually and cannot be pulled again
cpuManagerPolicy: static           # exclusive CPUs for Guaranteed pods with integer CPUs
kubeReserved: {cpu: 100m}          # required by "static", which rounds it up to one CPU
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
conntrack:   # 0: unset. The host owns the table size; timeouts need the module
  {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
END
  start_program kube-proxy /run/programs/kube-proxy --config=$inside/etc/kube-proxy.yaml
}
