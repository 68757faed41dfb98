package repository

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"
)

// SetBounds makes the bounds of a client smaller.
func SetBounds(c *Client, pack, references, object int64) {
	c.maxPack, c.maxReferences, c.maxObject = pack, references, object
}

// SetStatusTimeout shortens the time of SetStatus.
func SetStatusTimeout(c *Client, d time.Duration) { c.statusTimeout = d }

// StatusAddress is where SetStatus sends a status to.
func StatusAddress(s Status) (string, error) { return statusAddress(&s) }

// Bounds are those of every other client.
const Bounds = MaxPack + maxReferences

// ReadSlowly reads a response whose body comes byte by byte, with a pause before each.
func ReadSlowly(ctx context.Context, pause func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	body := newPaced(io.NopCloser(readerFunc(func(p []byte) (int, error) {
		if pause(); ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		return 1, nil
	})), cancel)
	_, err := io.Copy(io.Discard, body)
	if err = errors.Join(err, body.Close()); err == nil {
		return nil
	}
	return finish(ctx, &Source{}, err)
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

func (f *fixedConn) send(context.Context, []byte) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(f.response)), nil
}

func (*fixedConn) isV2(capabilities)           {}
func (*fixedConn) known() (capabilities, bool) { return capabilities{}, false }
func (*fixedConn) forget()                     {}
func (*fixedConn) hostKey() string             { return "" }
func (*fixedConn) close()                      {}
