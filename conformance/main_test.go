// Package conformance tests the data plane with third-party clients, servers and test suites:
// h2spec, gRPC's interoperability tests, and programs that people use.
package conformance

import (
	"testing"

	"google.golang.org/grpc/grpclog"

	"github.com/keygate/keygate/internal/keygatetest/leaktest"
)

func TestMain(m *testing.M) {
	grpclog.SetLoggerV2(panics{})
	leaktest.Main(m)
}
