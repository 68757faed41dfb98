package nethttp

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/proxy"
	"github.com/keygate/keygate/internal/upstream"
)

// upgradeOf returns the protocols that the request may ask the upstream to change to, or
// "". A request that has a body or uses HTTP/1.0 is forwarded without its upgrade.
func upgradeOf(r *http.Request) string {
	if r.ProtoMajor != 1 || !r.ProtoAtLeast(1, 1) || r.Body != http.NoBody ||
		!httpguts.HeaderValuesContainsToken(r.Header["Connection"], "Upgrade") {
		return ""
	}
	protocol := strings.Join(r.Header["Upgrade"], ", ")
	if !proxy.MayUpgrade(protocol) {
		return ""
	}
	return protocol
}

// tunnel joins the client's and the upstream's connections after a 101, until both
// directions have ended or one of them breaks.
func (x *exchange) tunnel(response *upstream.Response, asked string) {
	back, ok := response.Body.(io.ReadWriteCloser)
	protocol := response.Header.Get("Upgrade")
	if !ok || !proxy.Offered(asked, protocol) {
		x.refuse(proxy.BadUpgrade())
		return
	}
	x.settle()
	h := x.w.Header()
	x.responseFields(h, response.StatusCode, response.Header)
	x.ownFields()
	h["Connection"] = []string{"Upgrade"}
	h["Upgrade"] = []string{protocol}
	x.responded, x.status = true, http.StatusSwitchingProtocols
	x.emitStarted()
	front, buffered, err := x.rc.Hijack()
	if err != nil {
		x.server.cfg.Log.Error("upgrade of a connection failed", "request_id", x.RequestID(), "error", err)
		_ = back.Close()
		x.abort()
	}
	_ = front.SetDeadline(time.Time{})
	t := &pair{back: back, front: front}
	defer t.close()
	if writeSwitch(buffered.Writer, h) == nil {
		in, out := t.run(buffered.Reader)
		x.bytesIn.Store(in)
		x.bytesOut = out
	}
	x.noteDenied()
	x.emit(accesslog.Forwarded, http.StatusSwitchingProtocols)
}

func writeSwitch(w *bufio.Writer, h http.Header) error {
	_, _ = fmt.Fprintf(w, "HTTP/1.1 %d %s\r\n", http.StatusSwitchingProtocols, http.StatusText(http.StatusSwitchingProtocols))
	_ = h.Write(w)
	_, _ = w.WriteString("\r\n")
	return w.Flush() // returns the first error of the writes
}

// pair is the two connections of a tunnel.
type pair struct {
	back  io.ReadWriteCloser
	front net.Conn
}

func (p *pair) close() {
	_ = p.back.Close()
	_ = p.front.Close()
}

// run copies both directions and returns the number of bytes copied in each. buffered holds what
// the client sent after its head.
func (p *pair) run(buffered *bufio.Reader) (in, out int64) {
	var up sync.WaitGroup
	up.Go(func() {
		first := io.LimitReader(buffered, int64(buffered.Buffered()))
		n, err := io.Copy(p.back, first)
		if in = n; err != nil {
			p.close()
			return
		}
		in += p.pass(p.back, p.front)
	})
	out = p.pass(p.front, p.back)
	up.Wait()
	return in, out
}

// pass copies one direction and then closes it, so that the other can continue. If it
// breaks, both end. It returns the number of bytes copied.
func (p *pair) pass(to io.Writer, from io.Reader) int64 {
	n, err := proxy.Pass(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); err == nil && ok {
		err = half.CloseWrite()
		if err == nil {
			return n
		}
	}
	p.close()
	return n
}
