package nethttp

import (
	"io"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keygate/keygate/internal/proxy"
)

// pipeDeadlines is a ResponseWriter whose deadlines close a pipe as soon as they are set.
type pipeDeadlines struct {
	http.ResponseWriter
	read, write *io.PipeReader
}

func (d pipeDeadlines) SetReadDeadline(time.Time) error {
	return d.read.CloseWithError(os.ErrDeadlineExceeded)
}

func (d pipeDeadlines) SetWriteDeadline(time.Time) error {
	return d.write.CloseWithError(os.ErrDeadlineExceeded)
}

// Guarantee: contract 4.5. A request's body from which no byte arrives for 30 s is cut off.
// A slow body is not, nor one that is not being read, nor one whose response has started.
func TestStalledBodyIsCutOff(t *testing.T) {
	for name, c := range map[string]struct {
		pause     time.Duration // before each byte of three
		unread    time.Duration // between reads
		responded bool
		want      int
	}{
		"slow":             {pause: 29 * time.Second, want: 3},
		"unread":           {unread: time.Hour, want: 3},
		"stalled":          {pause: 31 * time.Second, want: 0},
		"response started": {pause: time.Hour, responded: true, want: 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pr, pw := io.Pipe()
				s := &Server{}
				x := s.newExchange(pipeDeadlines{read: pr}, &http.Request{Body: pr}, &proxy.Exchange{})
				x.responded = c.responded
				b := newBody(x.r, 0, nil, &x.stall.reading)
				x.stall.start()
				defer x.stall.stop()
				go func() {
					for range 3 {
						<-time.After(c.pause)
						_, _ = pw.Write([]byte("x"))
					}
					_ = pw.Close()
				}()
				got, start := 0, time.Now()
				for {
					n, err := b.Read(make([]byte, 8))
					got += n
					if err != nil {
						break
					}
					<-time.After(c.unread)
				}
				if got != c.want {
					t.Errorf("got %d bytes, want %d", got, c.want)
				}
				if took := time.Since(start); c.want == 0 && took > stallTime+time.Second {
					t.Errorf("got cut off after %v, want %v", took, stallTime)
				}
				<-time.After(time.Hour) // for the writer
			})
		})
	}
}

// Guarantee: writing to a client that reads nothing for 30 s fails, so that it does not
// occupy the upstream any longer.
func TestStalledClientIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pr, pw := io.Pipe()
		s := &Server{}
		x := s.newExchange(pipeDeadlines{write: pr}, &http.Request{}, &proxy.Exchange{})
		x.stall.start()
		defer x.stall.stop()
		go func() {
			for range 5 {
				<-time.After(20 * time.Second)
				_, _ = pr.Read(make([]byte, 1))
			}
		}()
		for i := range 6 {
			x.stall.writing.begin()
			_, err := pw.Write([]byte("x"))
			x.stall.writing.done()
			if i < 5 && err != nil {
				t.Fatalf("write %d: got error %v, want none while the client reads", i, err)
			}
			if i == 5 && err == nil {
				t.Fatal("last write: got no error, want one after 30 s without a read")
			}
		}
	})
}
