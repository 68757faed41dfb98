package conformance

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/orca"

	"github.com/keygate/keygate/internal/certificate/certificatetest"
)

// testTimeout only limits how long a failing test takes.
const testTimeout = 2 * time.Minute

// interopFailure is what a failed case of package interop panics with.
type interopFailure string

// panics is a logger that panics where gRPC would end the process, so that only one case fails.
type panics struct{}

func (panics) Fatal(args ...any)                 { panic(interopFailure(fmt.Sprint(args...))) }
func (panics) Fatalln(args ...any)               { panic(interopFailure(fmt.Sprintln(args...))) }
func (panics) Fatalf(format string, args ...any) { panic(interopFailure(fmt.Sprintf(format, args...))) }
func (panics) Info(...any)                       {}
func (panics) Infoln(...any)                     {}
func (panics) Infof(string, ...any)              {}
func (panics) Warning(...any)                    {}
func (panics) Warningln(...any)                  {}
func (panics) Warningf(string, ...any)           {}
func (panics) Error(...any)                      {}
func (panics) Errorln(...any)                    {}
func (panics) Errorf(string, ...any)             {}
func (panics) V(int) bool                        { return false }

// service is gRPC's own test service, with two changes. It has an identity, for the case
// pick_first_unary. And HalfDuplexCall ends the call after the first message or, if that message
// asks for responses, sends its metadata and waits for the end of the call.
type service struct {
	testgrpc.TestServiceServer
	gaveUp chan struct{} // receives when a waiting call has ended
}

func (s *service) UnaryCall(ctx context.Context, in *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	out, err := s.TestServiceServer.UnaryCall(ctx, in)
	if err == nil && in.FillServerId {
		out.ServerId = "conformance"
	}
	return out, err
}

func (s *service) HalfDuplexCall(stream testgrpc.TestService_HalfDuplexCallServer) error {
	in, err := stream.Recv()
	if err != nil || len(in.ResponseParameters) == 0 {
		return err
	}
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	<-stream.Context().Done()
	s.gaveUp <- struct{}{}
	return stream.Context().Err()
}

// countingListener counts the connections that it accepts.
type countingListener struct {
	net.Listener
	accepted atomic.Int64
}

func (l *countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.accepted.Add(1)
	}
	return c, err
}

// pair is a gRPC client and a gRPC server with a gateway between them.
type pair struct {
	*service
	listener *countingListener
	conn     *grpc.ClientConn
	dial     func() *grpc.ClientConn // makes another client
	client   testgrpc.TestServiceClient
}

// eachPair runs a test with and without TLS on each side of the gateway.
func eachPair(t *testing.T, test func(t *testing.T, p *pair)) {
	for _, client := range []string{"TLS", "h2c"} {
		for _, upstream := range []string{"https", "h2c"} {
			t.Run(client+" client and "+upstream+" upstream", func(t *testing.T) {
				t.Parallel()
				test(t, newPair(t, client == "TLS", upstream == "https", nil))
			})
		}
	}
}

// bothPairs runs a test with TLS on both sides of the gateway, and on neither. The server gets the
// options.
func bothPairs(t *testing.T, test func(t *testing.T, p *pair), options ...grpc.ServerOption) {
	for name, overTLS := range map[string]bool{"TLS": true, "clear": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newPair(t, overTLS, overTLS, options))
		})
	}
}

func newPair(t *testing.T, overTLS, upstreamTLS bool, options []grpc.ServerOption) *pair {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &pair{
		service:  &service{interop.NewTestServer(), make(chan struct{}, 1)},
		listener: &countingListener{Listener: l},
	}
	options = append([]grpc.ServerOption{orca.CallMetricsServerOption(nil)}, options...)
	settings := map[string]any{"upstream_url": "h2c://" + l.Addr().String()}
	if upstreamTLS {
		certificate := certificatetest.New(t, "localhost")
		loaded, err := tls.X509KeyPair(certificate.Cert, certificate.Key)
		if err != nil {
			t.Fatal(err)
		}
		options = append(options, grpc.Creds(credentials.NewServerTLSFromCert(&loaded)))
		settings = map[string]any{"upstream_url": "https://" + l.Addr().String(), "upstream_ca": string(certificate.Cert)}
	}
	server := grpc.NewServer(options...)
	testgrpc.RegisterTestServiceServer(server, p.service)
	served := make(chan error, 1)
	go func() { served <- server.Serve(p.listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	g := startGateway(t, overTLS, settings)
	p.dial = func() *grpc.ClientConn {
		creds := insecure.NewCredentials()
		if overTLS {
			creds = credentials.NewTLS(g.clientTLS(t))
		}
		conn, err := grpc.NewClient("passthrough:///"+g.addr, grpc.WithTransportCredentials(creds), grpc.WithUnaryInterceptor(unaryKey(g.key)),
			grpc.WithStreamInterceptor(streamKey(g.key)), grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"test_backend_metrics_load_balancer": {}}]}`))
		if err != nil {
			panic(err) // the target is not valid
		}
		return conn
	}
	p.conn = p.dial()
	t.Cleanup(func() { _ = p.conn.Close() })
	p.client = testgrpc.NewTestServiceClient(p.conn)
	return p
}

// withKey adds an API key to a call's metadata.
func withKey(ctx context.Context, key string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+key)
}

func unaryKey(key string) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		return invoke(withKey(ctx, key), method, req, reply, cc, opts...)
	}
}

func streamKey(key string) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		return stream(withKey(ctx, key), desc, cc, method, opts...)
	}
}

// interopCalls are cases of gRPC's interoperability tests in grpc-go that make calls.
func interopCalls() map[string]func(context.Context, testgrpc.TestServiceClient, ...grpc.CallOption) {
	return map[string]func(context.Context, testgrpc.TestServiceClient, ...grpc.CallOption){
		"empty_unary":                 interop.DoEmptyUnaryCall,
		"large_unary":                 interop.DoLargeUnaryCall,
		"client_streaming":            interop.DoClientStreaming,
		"server_streaming":            interop.DoServerStreaming,
		"ping_pong":                   interop.DoPingPong,
		"empty_stream":                interop.DoEmptyStream,
		"timeout_on_sleeping_server":  interop.DoTimeoutOnSleepingServer,
		"cancel_after_begin":          interop.DoCancelAfterBegin,
		"cancel_after_first_response": interop.DoCancelAfterFirstResponse,
		"status_code_and_message":     interop.DoStatusCodeAndMessage,
		"special_status_message":      interop.DoSpecialStatusMessage,
		"custom_metadata":             interop.DoCustomMetadata,
	}
}

// interopChannels are the other cases, except those for Google's credentials and clouds, and
// orca_oob, whose server reports only every 30 s.
func interopChannels() map[string]func(ctx context.Context, p *pair) {
	soak := func(ctx context.Context, channel func() (*grpc.ClientConn, func())) {
		interop.DoSoakTest(ctx, interop.SoakTestConfig{
			RequestSize: 271828, ResponseSize: 314159, PerIterationMaxAcceptableLatency: testTimeout, OverallTimeout: testTimeout,
			NumWorkers: 4, Iterations: 12, ChannelForTest: channel,
		})
	}
	return map[string]func(context.Context, *pair){
		"unimplemented_method": func(ctx context.Context, p *pair) { interop.DoUnimplementedMethod(ctx, p.conn) },
		"unimplemented_service": func(ctx context.Context, p *pair) {
			interop.DoUnimplementedService(ctx, testgrpc.NewUnimplementedServiceClient(p.conn))
		},
		"pick_first_unary": func(ctx context.Context, p *pair) { interop.DoPickFirstUnary(ctx, p.client) },
		"orca_per_rpc":     func(ctx context.Context, p *pair) { interop.DoORCAPerRPCTest(ctx, p.client) },
		"rpc_soak": func(ctx context.Context, p *pair) {
			soak(ctx, func() (*grpc.ClientConn, func()) { return p.conn, func() {} })
		},
		"channel_soak": func(ctx context.Context, p *pair) {
			soak(ctx, func() (*grpc.ClientConn, func()) {
				conn := p.dial()
				return conn, func() { _ = conn.Close() }
			})
		},
	}
}

// Guarantee: every case of gRPC's interoperability tests passes, with and without TLS on either side,
// and so do calls with compression.
func TestGRPCInterop(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, p *pair) {
		run := func(name string, f func(ctx context.Context)) {
			t.Run(name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
				defer cancel()
				defer func() {
					switch failure := recover().(type) {
					case nil:
					case interopFailure:
						t.Error(strings.TrimSpace(string(failure)))
					default:
						panic(failure)
					}
				}()
				f(ctx)
			})
		}
		for name, f := range interopCalls() {
			run(name, func(ctx context.Context) { f(ctx, p.client) })
			run(name+" with gzip", func(ctx context.Context) { f(ctx, p.client, grpc.UseCompressor(gzip.Name)) })
		}
		for name, f := range interopChannels() {
			run(name, func(ctx context.Context) { f(ctx, p) })
		}
	})
}
