package proxy

import (
	"math"
	"testing"
	"time"

	"github.com/keygate/keygate/internal/admit"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/snapshot"
)

// header is an admit.Header of fields that occur once.
type header map[string]string

func (h header) HeaderValue(name string) (value string, count int) {
	value, ok := h[name]
	if ok {
		count = 1
	}
	return value, count
}

// Guarantee: an upstream has the gateway's timeout for the head of its response, or the grpc-timeout
// of a gRPC call if that is less. A value has no effect unless it is up to 8 digits and a unit, and
// the field has none in a request that is not a gRPC call.
func TestGRPCTimeout(t *testing.T) {
	const gateway, grpc = 10 * time.Second, "application/grpc+proto"
	for _, c := range []struct {
		contentType, value string
		head, call         time.Duration // call is -1 without a limit
	}{
		{grpc, "1H", gateway, time.Hour}, {grpc, "2M", gateway, 2 * time.Minute}, {grpc, "3S", 3 * time.Second, 3 * time.Second},
		{grpc, "4m", 4 * time.Millisecond, 4 * time.Millisecond}, {grpc, "5u", 5 * time.Microsecond, 5 * time.Microsecond}, {grpc, "6n", 6, 6},
		{grpc, "00000001S", time.Second, time.Second}, {grpc, "99999999H", gateway, math.MaxInt64}, {grpc, "10S", gateway, gateway},
		{grpc, "100000000n", gateway, -1}, {grpc, "", gateway, -1}, {grpc, "S", gateway, -1}, {grpc, "1", gateway, -1}, {grpc, "1s", gateway, -1},
		{grpc, "-1S", gateway, -1}, {grpc, "+1S", gateway, -1}, {grpc, "1.5S", gateway, -1}, {grpc, " 1S", gateway, -1}, {grpc, "1SS", gateway, -1},
		{"application/json", "1S", gateway, -1}, {"", "1S", gateway, -1},
	} {
		x := Exchange{Verdict: admit.Verdict{Gateway: &snapshot.Settings{}, Upstream: &snapshot.Upstream{Timeout: gateway}}}
		if err := x.CheckForward(header{"content-type": c.contentType, "grpc-timeout": c.value}, 0, false); err != nil {
			t.Errorf("%q: got error %v", c.value, err)
		}
		call, ok := x.CallTimeout()
		if !ok {
			call = -1
		}
		if head := x.HeadTimeout(); head != c.head || call != c.call {
			t.Errorf("%q, %q: got %v for the head and %v for the call, want %v and %v", c.contentType, c.value, head, call, c.head, c.call)
		}
	}
}

// Guarantee: a gRPC call with a timeout of 0 gets a 504 at once.
func TestNoTimeIsTimeout(t *testing.T) {
	x := Exchange{Verdict: admit.Verdict{Gateway: &snapshot.Settings{}}}
	err := x.CheckForward(header{"content-type": "application/grpc", "grpc-timeout": "0n"}, 0, false)
	if fault.CodeOf(err) != fault.UpstreamTimeout {
		t.Errorf("got %v, want %v", err, fault.UpstreamTimeout)
	}
}
