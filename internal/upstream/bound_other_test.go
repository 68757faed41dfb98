//go:build !linux

package upstream_test

import (
	"net"
	"testing"
)

// Elsewhere nothing tells these, so nothing is held against them.

func standing(net.Conn) bool { return false }

func fullListener(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
