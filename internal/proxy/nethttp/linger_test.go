package nethttp

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/proxy"
)

// deadlineWriter is a ResponseWriter whose read deadline, when it expires, closes a pipe.
type deadlineWriter struct {
	*httptest.ResponseRecorder
	read *io.PipeReader
}

func (w deadlineWriter) SetReadDeadline(t time.Time) error {
	if !t.IsZero() {
		time.AfterFunc(time.Until(t), func() { _ = w.read.CloseWithError(os.ErrDeadlineExceeded) })
	}
	return nil
}

// Guarantee: contract 4.4. An error response over HTTP/2 does not wait for the request's
// body for longer than the linger time: the stream then ends, even if the client, as Go's
// does, ends its body only afterwards.
func TestRefusalLingers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body, client := io.Pipe()
		defer client.Close()
		s := &Server{cfg: Config{Linger: defaultLinger}}
		r := &http.Request{Method: http.MethodPost, ProtoMajor: 2, Body: body, ContentLength: -1}
		x := s.newExchange(deadlineWriter{httptest.NewRecorder(), body}, r, &proxy.Exchange{})
		start := time.Now()
		x.respond(http.StatusUnauthorized, []byte("{}"))
		if took := time.Since(start); took != defaultLinger {
			t.Errorf("got the end of the stream %s after the response, want %s", took, defaultLinger)
		}
	})
}
