package conformance

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

// payload returns a payload of n bytes.
func payload(n int) *testgrpc.Payload {
	return interop.ClientNewPayload(testgrpc.PayloadType_COMPRESSABLE, n)
}

// Guarantee: messages of 4 MB, gRPC's default limit, pass in both directions at once.
func TestGRPCLargeMessages(t *testing.T) {
	t.Parallel()
	const size = 4<<20 - 100
	bothPairs(t, func(t *testing.T, p *pair) {
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		var calls sync.WaitGroup
		for range 2 {
			calls.Go(func() {
				out, err := p.client.UnaryCall(ctx, &testgrpc.SimpleRequest{ResponseSize: size, Payload: payload(size)})
				if got := len(out.GetPayload().GetBody()); err != nil || got != size {
					t.Errorf("got a message of %d bytes, error %v; want %d", got, err, size)
				}
			})
		}
		calls.Wait()
	})
}

// Guarantee: a bidirectional call that the server ends first, with or without an error, ends for the
// client at once, although the client has not ended its half.
func TestGRPCServerEndsFirst(t *testing.T) {
	t.Parallel()
	bothPairs(t, func(t *testing.T, p *pair) {
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		for range 10 {
			half, err := p.client.HalfDuplexCall(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := half.Send(&testgrpc.StreamingOutputCallRequest{Payload: payload(100)}); err != nil {
				t.Fatal(err)
			}
			if _, err := half.Recv(); !errors.Is(err, io.EOF) {
				t.Errorf("a server that ends a call: got error %v, want EOF", err)
			}
			full, err := p.client.FullDuplexCall(ctx)
			if err != nil {
				t.Fatal(err)
			}
			end := &testgrpc.EchoStatus{Code: int32(codes.FailedPrecondition), Message: "enough"}
			if err := full.Send(&testgrpc.StreamingOutputCallRequest{ResponseStatus: end}); err != nil {
				t.Fatal(err)
			}
			if _, err := full.Recv(); status.Code(err) != codes.FailedPrecondition || status.Convert(err).Message() != "enough" {
				t.Errorf("a server that ends a call with an error: got error %v, want FailedPrecondition", err)
			}
		}
	})
}

// Guarantee: a call that the client cancels ends at the server.
func TestGRPCCancellationReachesServer(t *testing.T) {
	t.Parallel()
	bothPairs(t, func(t *testing.T, p *pair) {
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		call, giveUp := context.WithCancel(ctx)
		defer giveUp()
		stream, err := p.client.HalfDuplexCall(call)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&testgrpc.StreamingOutputCallRequest{ResponseParameters: []*testgrpc.ResponseParameters{{Size: 1}}}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Header(); err != nil { // the server has the call
			t.Fatal(err)
		}
		giveUp()
		select {
		case <-p.gaveUp:
		case <-ctx.Done():
			t.Error("the call did not end at the server")
		}
	})
}

// Guarantee: a client that does not read a response of 10 MB delays none of the 99 other calls of
// its connection, and gets the whole response afterwards.
func TestGRPCSlowReaderHoldsUpNobody(t *testing.T) {
	t.Parallel()
	const messages, size = 10, 1 << 20
	bothPairs(t, func(t *testing.T, p *pair) {
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		ask := &testgrpc.StreamingOutputCallRequest{}
		for range messages {
			ask.ResponseParameters = append(ask.ResponseParameters, &testgrpc.ResponseParameters{Size: size})
		}
		slow, err := p.client.StreamingOutputCall(ctx, ask)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := slow.Header(); err != nil {
			t.Fatal(err)
		}
		var calls sync.WaitGroup
		for range 99 {
			calls.Go(func() {
				if _, err := p.client.UnaryCall(ctx, &testgrpc.SimpleRequest{ResponseSize: 20_000, Payload: payload(20_000)}); err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		for i := range messages {
			if out, err := slow.Recv(); err != nil || len(out.Payload.Body) != size {
				t.Fatalf("message %d: got %d bytes, error %v; want %d", i, len(out.GetPayload().GetBody()), err, size)
			}
		}
		if _, err := slow.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("got error %v, want EOF", err)
		}
	})
}

// Guarantee: no call fails while the server ends its connections with GOAWAY again and again, not
// even a call that outlasts its connection.
func TestGRPCServerGoesAway(t *testing.T) {
	t.Parallel()
	bothPairs(t, func(t *testing.T, p *pair) {
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		long, err := p.client.FullDuplexCall(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var made atomic.Int64
		var calls sync.WaitGroup
		for range 8 {
			calls.Go(func() {
				for p.listener.accepted.Load() < 4 && !t.Failed() {
					if _, err := p.client.UnaryCall(ctx, &testgrpc.SimpleRequest{ResponseSize: 1000, Payload: payload(1000)}); err != nil {
						t.Errorf("call %d: %v", made.Load(), err)
					}
					made.Add(1)
				}
			})
		}
		calls.Wait()
		if err := long.Send(&testgrpc.StreamingOutputCallRequest{ResponseParameters: []*testgrpc.ResponseParameters{{Size: 1}}}); err != nil {
			t.Fatal(err)
		}
		if _, err := long.Recv(); err != nil {
			t.Errorf("the long call: %v", err)
		}
		if err := long.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if _, err := long.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("the end of the long call: got error %v, want EOF", err)
		}
	}, grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: 100 * time.Millisecond, MaxConnectionAgeGrace: testTimeout}))
}
