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

// deadlines is a ResponseWriter whose deadlines, once in the past, break a pipe.
type deadlines struct {
	http.ResponseWriter
	read, write *io.PipeReader
}

func (d deadlines) SetReadDeadline(time.Time) error {
	return d.read.CloseWithError(os.ErrDeadlineExceeded)
}

func (d deadlines) SetWriteDeadline(time.Time) error {
	return d.write.CloseWithError(os.ErrDeadlineExceeded)
}

// A body that gives nothing for 30 s is cut off, one that gives a byte now and
// then is not, nor one that nobody reads, nor one whose answer has begun
// (contract, 4.5).
func TestBodyStall(t *testing.T) {
	for name, c := range map[string]struct {
		pause    time.Duration // before each byte of three
		unread   time.Duration // between reads
		answered bool
		want     int
	}{
		"slow":     {pause: 29 * time.Second, want: 3},
		"unread":   {unread: time.Hour, want: 3},
		"stalled":  {pause: 31 * time.Second, want: 0},
		"answered": {pause: time.Hour, answered: true, want: 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pr, pw := io.Pipe()
				s := &Server{}
				x := s.newExchange(deadlines{read: pr}, &http.Request{Body: pr}, &proxy.Exchange{})
				x.answered = c.answered
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
				got, began := 0, time.Now()
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
				if took := time.Since(began); c.want == 0 && took > stallTime+time.Second {
					t.Errorf("cut off after %v", took)
				}
				<-time.After(time.Hour) // for the writer
			})
		})
	}
}

// A client that takes nothing for 30 s does not hold the upstream any longer.
func TestReaderStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pr, pw := io.Pipe()
		s := &Server{}
		x := s.newExchange(deadlines{write: pr}, &http.Request{}, &proxy.Exchange{})
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
			if (err != nil) != (i == 5) {
				t.Fatalf("write %d: %v", i, err)
			}
		}
	})
}
