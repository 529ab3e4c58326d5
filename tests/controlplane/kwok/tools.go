//go:build tools

// Package kwok names the program that build.sh builds from this module.
package kwok

import _ "sigs.k8s.io/kwok/cmd/kwok"
