package adminapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/keygate/keygate/internal/fault"
)

// DefaultStall is how long a client may take to read a piece of a stream by default.
const DefaultStall = 30 * time.Second

// recheckEvery is how often the key of a stream is checked again.
const recheckEvery = time.Second

// stream is the body of a response that may be of any length. write calls emit for each piece,
// in order; if it returns an error, the response is broken off. end is called once, after write
// or instead of it.
type stream struct {
	write func(emit func(piece []byte) error) error
	slot  *exportSlot // which it may lose to another account; nil if it needs no slot
	live  bool        // each piece is sent at once, and write checks the key
	end   func()
}

// errRefused is the error of a stream whose key was revoked or has expired since it began.
var errRefused = errors.New("the key is no longer valid")

// stream sends a response with a stream. Each piece must be read within Config.Stall; nothing
// is read ahead for a client that is slow. If the stream fails, the connection is closed before
// the end of the response, so that no client takes a part of it for the whole.
func (a *API) stream(w http.ResponseWriter, c *call, res response) {
	defer res.stream.end()
	// The timeouts of the server are for whole requests and responses. A writer without
	// deadlines, in a test, has no timeouts either.
	_ = c.conn.SetReadDeadline(time.Time{})
	_ = c.conn.SetWriteDeadline(time.Now().Add(a.cfg.Stall))
	w.WriteHeader(res.status)
	if c.request.Method == http.MethodHead {
		return
	}
	_ = c.conn.Flush() // the first record may be far into the log
	checked := c.now
	err := res.stream.write(func(piece []byte) error {
		if res.stream.live {
			_ = c.conn.SetWriteDeadline(time.Now().Add(a.cfg.Stall))
			_, err := w.Write(piece)
			return errors.Join(err, c.conn.Flush())
		}
		if now := a.cfg.Now(); now.Sub(checked).Abs() >= recheckEvery {
			checked = now
			if err := c.recheck(now); err != nil {
				return err
			}
		}
		if err := res.stream.slot.begin(a.cfg.Stall); err != nil {
			return err
		}
		_, err := w.Write(piece)
		return errors.Join(err, res.stream.slot.done(len(piece)))
	})
	if err == nil {
		_ = c.conn.SetWriteDeadline(time.Now().Add(a.cfg.Stall)) // for the last piece
		return
	}
	level := slog.LevelWarn
	if errors.Is(err, context.Canceled) {
		level = slog.LevelDebug // the client hung up
	}
	a.cfg.Log.Log(c.ctx, level, "response broken off", "request_id", c.requestID, "method", c.request.Method,
		"path", c.request.URL.EscapedPath(), "error", err.Error())
	panic(http.ErrAbortHandler)
}

// recheck returns an error if the key, the session or the token of the call would now be refused.
func (c *call) recheck(now time.Time) error {
	refused := fmt.Errorf("break off a stream: %w", errRefused)
	if c.principal.User == nil {
		if p, found := c.api.cfg.Authenticate(c.keyDigest, now); !found || p.Expired {
			return refused
		}
	}
	if c.principal.TokenID != "" {
		t, err := c.api.cfg.Control.TokenInForce(c.ctx, c.tokenDigest)
		if fault.CodeOf(err) == fault.NotFound || err == nil && (!now.Before(t.ExpiresAt) || t.User.Role != c.principal.User.Role) {
			return refused
		}
		return err
	}
	if c.session == "" {
		return nil
	}
	session, err := c.api.cfg.Control.SignedIn(c.ctx, c.session)
	if fault.CodeOf(err) == fault.NotFound {
		return refused
	}
	if err == nil && session.User != nil && session.User.Role != c.principal.User.Role {
		return refused // it may see less now
	}
	return err
}
