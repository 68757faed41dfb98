package wire

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/keygate/keygate/internal/keygatetest/awaittest"
)

// talk returns a gRPC service. Its method One returns its text, or an error for the text "fail";
// its method Both returns each text as it arrives.
func talk() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: "wire.Talk",
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "One", Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			var in wrapperspb.StringValue
			if err := decode(&in); err != nil {
				return nil, err
			}
			if err := grpc.SetTrailer(ctx, metadata.Pairs("x-sum", strconv.Itoa(len(in.Value)))); err != nil {
				return nil, err
			}
			if in.Value == "fail" {
				return nil, status.Error(codes.FailedPrecondition, "requested by the test")
			}
			return &in, nil
		}}},
		Streams: []grpc.StreamDesc{{StreamName: "Both", ServerStreams: true, ClientStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
			for {
				var in wrapperspb.StringValue
				switch err := s.RecvMsg(&in); {
				case errors.Is(err, io.EOF):
					return nil
				case err != nil:
					return err
				}
				if err := s.SendMsg(&in); err != nil {
					return err
				}
			}
		}}},
	}
}

// dialServer connects to a server's data plane, over TLS with a protocol of ALPN if it has a
// certificate.
func dialServer(t *testing.T, s *testServer, protocol string) net.Conn {
	t.Helper()
	if s.cert == "" {
		return dial(t, s.addr)
	}
	conn, err := tls.Dial("tcp", s.addr, s.clientTLS(t, protocol))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func (s *testServer) clientTLS(t *testing.T, protocol string) *tls.Config {
	t.Helper()
	pem, err := os.ReadFile(s.cert)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return &tls.Config{RootCAs: roots, ServerName: hostname, NextProtos: []string{protocol}, MinVersion: tls.VersionTLS12}
}

// Guarantee: gRPC calls and bidirectional streams pass with their trailers and errors, with
// and without TLS, to an upstream that speaks HTTP/2 without TLS.
func TestGRPC(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	up := grpc.NewServer()
	up.RegisterService(talk(), nil)
	served := make(chan error, 1)
	go func() { served <- up.Serve(l) }()
	t.Cleanup(func() {
		up.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	for _, overTLS := range []bool{false, true} {
		t.Run("tls "+strconv.FormatBool(overTLS), func(t *testing.T) {
			s := startServer(t, "h2c://"+l.Addr().String(), overTLS)
			creds := insecure.NewCredentials()
			if overTLS {
				creds = credentials.NewTLS(s.clientTLS(t, "h2"))
			}
			conn, err := grpc.NewClient("passthrough:///"+s.addr, grpc.WithTransportCredentials(creds), grpc.WithAuthority(hostname))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			ctx, cancel := context.WithTimeout(t.Context(), awaittest.Timeout)
			defer cancel()
			calls(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+s.key), t, conn)
			if err := conn.Invoke(ctx, "/wire.Talk/One", wrapperspb.String("x"), &wrapperspb.StringValue{}); status.Code(err) != codes.Unauthenticated || !strings.Contains(status.Convert(err).Message(), "the key is missing or not valid") {
				t.Errorf("call without a key: got error %v, want Unauthenticated with the message of the 401", err)
			}
		})
	}
}

// calls makes a call, a failing call, and a stream.
func calls(ctx context.Context, t *testing.T, conn *grpc.ClientConn) {
	t.Helper()
	var got wrapperspb.StringValue
	var trailer metadata.MD
	if err := conn.Invoke(ctx, "/wire.Talk/One", wrapperspb.String("hello"), &got, grpc.Trailer(&trailer)); err != nil || got.Value != "hello" {
		t.Fatalf("call: got %q, error %v; want hello", got.Value, err)
	}
	if sum := trailer.Get("x-sum"); len(sum) != 1 || sum[0] != "5" {
		t.Errorf("call: got trailers %v, want x-sum: 5", trailer)
	}
	if err := conn.Invoke(ctx, "/wire.Talk/One", wrapperspb.String("fail"), &got); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("failing call: got error %v, want FailedPrecondition", err)
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/wire.Talk/Both")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 { // each waits for its response, so buffering would block the stream
		if err := stream.SendMsg(wrapperspb.String(strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
		if err := stream.RecvMsg(&got); err != nil || got.Value != strconv.Itoa(i) {
			t.Fatalf("message %d: got %q, error %v", i, got.Value, err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := stream.RecvMsg(&got); !errors.Is(err, io.EOF) {
		t.Errorf("end of the stream: got error %v, want EOF", err)
	}
}
