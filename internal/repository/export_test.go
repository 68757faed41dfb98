package repository

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
)

// SetBounds makes the bounds of a client smaller.
func SetBounds(c *Client, pack, references, object int64) {
	c.maxPack, c.maxReferences, c.maxObject = pack, references, object
}

// SetMaxBuilt makes the bound of the work for a pack smaller.
func SetMaxBuilt(c *Client, n int64) { c.maxBuilt = n }

// TakeSlots takes all slots for heavy packs.
func TakeSlots(c *Client) {
	for range cap(c.heavy) {
		c.heavy <- struct{}{}
	}
}

// SetStatusTimeout shortens the time of SetStatus.
func SetStatusTimeout(c *Client, d time.Duration) { c.statusTimeout = d }

// StatusAddress is where SetStatus sends a status to.
func StatusAddress(s Status) (string, error) { return statusAddress(&s) }

// It has the bounds of every other client.
const Bounds = MaxPack + maxReferences

// LocalCalls is how many calls read directories.
func LocalCalls(c *Client) int { return len(c.local) }

// SetStallTime shortens the time in which a server must send something.
func SetStallTime(c *Client, d time.Duration) { c.stallTime = d }

// ReadSlowly reads a response whose body comes byte by byte, with a pause before each.
func ReadSlowly(ctx context.Context, pause func()) error {
	p := newPaced(ctx, stallTime)
	p.begin(false)
	p.body = io.NopCloser(readerFunc(func([]byte) (int, error) {
		if pause(); p.ctx.Err() != nil {
			return 0, p.ctx.Err()
		}
		return 1, nil
	}))
	_, err := io.Copy(io.Discard, p)
	if err = errors.Join(err, p.Close()); err == nil {
		return nil
	}
	return finish(ctx, &Source{}, err)
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// ReadPrepared fetches a commit from a server that sends parts of its response, after a pause before
// each.
func ReadPrepared(ctx context.Context, dir string, pause func(), parts ...string) error {
	c, err := New(Config{Dir: dir})
	if err != nil {
		return err
	}
	r := c.remote(&preparedConn{pause: pause, parts: parts})
	r.v2 = true
	defer r.close()
	_, err = r.object(ctx, plumbing.CommitObject, "1111111111111111111111111111111111111111", "1111111111111111111111111111111111111111")
	return finish(ctx, &Source{}, err)
}

type preparedConn struct {
	fixedConn

	pause func()
	parts []string
}

func (c *preparedConn) send(ctx context.Context, _ []byte, prepares bool) (response, error) {
	p := newPaced(ctx, stallTime)
	p.begin(prepares)
	p.body = io.NopCloser(readerFunc(func(b []byte) (int, error) {
		if c.pause(); p.ctx.Err() != nil {
			return 0, p.ctx.Err()
		}
		if len(c.parts) == 0 {
			return 0, io.EOF
		}
		n := copy(b, c.parts[0])
		c.parts = c.parts[1:]
		return n, nil
	}))
	return p, nil
}

// ReadResponses reads the file api/openapi.yaml of a commit from a server that sends the given
// bytes first, and then the others as the response to each request.
func ReadResponses(dir string, discovery, response []byte) (*File, error) {
	ctx := context.Background()
	c, err := New(Config{Dir: dir})
	if err != nil {
		return nil, err
	}
	SetBounds(c, 1<<20, 1<<20, 1<<20)
	r := c.remote(&fixedConn{discovery, response})
	defer r.close()
	commit, err := r.head(ctx, "main")
	if err != nil {
		commit = "1111111111111111111111111111111111111111"
	}
	f, err := readFile(ctx, r, commit, "api/openapi.yaml")
	return f, finish(ctx, &Source{}, err)
}

type fixedConn struct{ discovery, response []byte }

func (f *fixedConn) advertised(context.Context) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(f.discovery)), nil
}

func (f *fixedConn) send(ctx context.Context, _ []byte, prepares bool) (response, error) {
	p := newPaced(ctx, stallTime)
	p.begin(prepares)
	p.body = io.NopCloser(bytes.NewReader(f.response))
	return p, nil
}

func (*fixedConn) isV2(capabilities)           {}
func (*fixedConn) known() (capabilities, bool) { return capabilities{}, false }
func (*fixedConn) forget()                     {}
func (*fixedConn) hostKey() string             { return "" }
func (*fixedConn) close()                      {}
