package repository

import (
	"context"
	"errors"
	"io"
	"time"
)

// The pace that a server must keep while it responds.
const (
	stallTime   = 30 * time.Second
	stallBytes  = 16 << 10        // that must arrive in each stallTime
	prepareTime = 2 * time.Minute // for a pack, until its first byte
)

var (
	errStalled    = errors.New("the server sends too slowly")
	errUnprepared = errors.New("the server prepares a pack for too long")
)

// response is a response that must keep a pace.
type response interface {
	io.ReadCloser
	// packBegins says that the first byte of a pack has come. The server has prepareTime until then.
	packBegins()
}

// paced is a response, or a whole connection, on which stallBytes must come in each stallTime. If
// they do not, its context ends.
type paced struct {
	ctx       context.Context
	cancel    context.CancelCauseFunc
	stallTime time.Duration
	body      io.ReadCloser
	timer     *time.Timer // nil while nothing is waited for
	preparing bool
	got       int
}

// newPaced returns a paced whose pace does not count before begin. The caller sets body.
func newPaced(ctx context.Context, stallTime time.Duration) *paced {
	p := &paced{stallTime: stallTime}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	return p
}

// begin begins to wait for a response. prepares says that the server prepares it first.
func (p *paced) begin(prepares bool) {
	p.pause()
	p.got, p.preparing = 0, prepares
	if prepares {
		p.timer = time.AfterFunc(prepareTime, func() { p.cancel(errUnprepared) })
		return
	}
	p.timer = time.AfterFunc(p.stallTime, func() { p.cancel(errStalled) })
}

// pause ends the wait.
func (p *paced) pause() {
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
}

// packBegins implements response.
func (p *paced) packBegins() {
	if p.preparing {
		p.begin(false)
	}
}

func (p *paced) Read(b []byte) (int, error) {
	n, err := p.body.Read(b)
	if p.got += n; !p.preparing && p.got >= stallBytes && p.timer != nil {
		p.got = 0
		p.timer.Reset(p.stallTime)
	}
	if err != nil {
		err = p.causeOf(err)
	}
	return n, err
}

// causeOf returns why the server was too slow, if that is what has ended the context; else it returns err.
func (p *paced) causeOf(err error) error {
	if isSlow(context.Cause(p.ctx)) {
		return context.Cause(p.ctx)
	}
	return err
}

// isSlow reports whether err says that a server was too slow.
func isSlow(err error) bool { return errors.Is(err, errStalled) || errors.Is(err, errUnprepared) }

// Close implements io.Closer. It gives the request up.
func (p *paced) Close() error {
	p.pause()
	err := p.body.Close()
	p.cancel(nil)
	return err
}

// packReader is the pack of a response.
type packReader struct {
	r  io.Reader
	of response // nil after the first byte
}

func (p *packReader) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	if n > 0 && p.of != nil {
		p.of.packBegins()
		p.of = nil
	}
	return n, err
}
