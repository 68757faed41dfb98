//go:build !linux

package upstream_test

import (
	"net"
	"testing"
)

// Other systems do not report these, so the tests check nothing there.

func established(net.Conn) bool { return false }

func fullListener(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
