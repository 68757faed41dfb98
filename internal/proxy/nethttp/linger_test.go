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

// expiring is a ResponseWriter whose read deadline breaks a pipe when it comes.
type expiring struct {
	*httptest.ResponseRecorder
	read *io.PipeReader
}

func (e expiring) SetReadDeadline(t time.Time) error {
	if !t.IsZero() {
		time.AfterFunc(time.Until(t), func() { _ = e.read.CloseWithError(os.ErrDeadlineExceeded) })
	}
	return nil
}

// Guarantee: contract 4.4, an answer that refuses does not wait for the request's
// body over HTTP/2 either: its stream ends soon though the client, as that of Go
// does, ends its body only after that.
func TestRefusalLingersShortly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body, client := io.Pipe()
		defer client.Close()
		s := &Server{cfg: Config{Linger: defaultLinger}}
		r := &http.Request{Method: http.MethodPost, ProtoMajor: 2, Body: body, ContentLength: -1}
		x := s.newExchange(expiring{httptest.NewRecorder(), body}, r, &proxy.Exchange{})
		began := time.Now()
		x.answer(http.StatusUnauthorized, []byte("{}"))
		if took := time.Since(began); took != defaultLinger {
			t.Errorf("the stream ends %s after the answer, want %s", took, defaultLinger)
		}
	})
}
