//go:build tools

// Package kubelet names the programs that build.sh builds from this module. It is apart from
// the control plane's own, so that a change here never builds that anew.
package kubelet

import _ "k8s.io/kubernetes/cmd/kubelet"
