//go:build tools

// Package etcd names the program that build.sh builds from this module.
package etcd

import _ "go.etcd.io/etcd/server/v3"
