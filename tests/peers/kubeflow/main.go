// The controller of PyTorchJobs of Kubeflow's training operator, without its webhooks and without
// leader election: a peer for kubeflow_test.cpp. KUBECONFIG names the API server. The argument, if
// there is one, is the operator's flag --gang-scheduler-name.
package main

import (
	"os"

	kubeflow "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	"github.com/kubeflow/training-operator/pkg/config"
	"github.com/kubeflow/training-operator/pkg/controller.v1/common"
	"github.com/kubeflow/training-operator/pkg/controller.v1/pytorch"
	"k8s.io/apimachinery/pkg/runtime"
	clientgo "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	plugins "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	volcano "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	volcanoclient "volcano.sh/apis/pkg/client/clientset/versioned"
)

func check(err error) {
	if err != nil {
		ctrl.Log.Error(err, "the peer cannot run")
		os.Exit(1)
	}
}

func gangScheduling(manager ctrl.Manager) common.GangSchedulingSetupFunc {
	if len(os.Args) < 2 {
		return common.GenNonGangSchedulerSetupFunc()
	}
	if os.Args[1] == string(common.GangSchedulerVolcano) {
		return common.GenVolcanoSetupFunc(volcanoclient.NewForConfigOrDie(manager.GetConfig()))
	}
	return common.GenSchedulerPluginsSetupFunc(manager.GetClient(), os.Args[1])
}

func main() {
	ctrl.SetLogger(zap.New())
	scheme := runtime.NewScheme()
	check(clientgo.AddToScheme(scheme))
	check(kubeflow.AddToScheme(scheme))
	check(plugins.AddToScheme(scheme))
	check(volcano.AddToScheme(scheme))
	config.Config.PyTorchInitContainerImage = config.PyTorchInitContainerImageDefault
	config.Config.PyTorchInitContainerMaxTries = config.PyTorchInitContainerMaxTriesDefault
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metrics.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
	})
	check(err)
	reconciler := pytorch.NewReconciler(manager, gangScheduling(manager))
	check(reconciler.SetupWithManager(manager, 1))
	check(manager.Start(ctrl.SetupSignalHandler()))
}
