package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/keygate/keygate/internal/fault"
)

// The response to a rollback lists every route that it changes, and may have many megabytes. The transaction of the
// rollback, for which all other changes wait, writes no such body. It is stored before, in parts: stored responses of
// their own, under keys that no call can have. The response that the transaction stores names them.

const (
	// maxWholeBody is the size of the largest body that is stored in one piece, and of a part, in bytes.
	maxWholeBody = 128 << 10
	// partsHeader is the header of a stored response whose body is in parts: their name and number. No HTTP header has
	// such a name.
	partsHeader = "\x01parts"
	// partsKept is how much longer than the response its parts are kept, which are older.
	partsKept = time.Hour
)

// bodyParts names the parts of a body.
type bodyParts struct {
	name   string
	number int
}

func (p bodyParts) String() string { return p.name + " " + strconv.Itoa(p.number) }

// key returns the Idempotency-Key of a part. A call cannot have it, since it is not printable.
func (p bodyParts) key(i int) string { return "\x01" + p.name + " " + strconv.Itoa(i) }

// partsOf returns the parts in which the body of a stored response is; ok is false if it is in one piece.
func partsOf(r *StoredResponse) (p bodyParts, ok bool, err error) {
	text, ok := r.Header[partsHeader]
	if !ok {
		return p, false, nil
	}
	if _, err := fmt.Sscanf(text, "%s %d", &p.name, &p.number); err != nil {
		return p, true, fmt.Errorf("parts of a stored response %q: %w", text, err)
	}
	return p, true, nil
}

// encodedBefore returns ctx with the encoded response of an operation whose result is known before its transaction, so that
// a large response takes no time in the transaction: its body is stored now. If the operation fails, drop removes it.
func (s *Service) encodedBefore(ctx context.Context, actor *Actor, result any) (_ context.Context, drop func(error), err error) {
	i := idempotencyOf(ctx)
	if i == nil {
		return ctx, func(error) {}, nil
	}
	status, header, body, err := i.Encode(result)
	if err != nil {
		return nil, nil, fmt.Errorf("encode the response to store: %w", err)
	}
	drop = func(error) {}
	if len(body) > maxWholeBody {
		p, err := s.storeParts(ctx, actor, i.KeyID, body)
		drop = func(failed error) { s.dropParts(ctx, i, p, failed) }
		if err != nil {
			drop(err)
			return nil, nil, err
		}
		named := map[string]string{partsHeader: p.String()}
		maps.Copy(named, header)
		header, body = named, nil
	}
	encoded := *i
	encoded.Encode = func(any) (int, map[string]string, []byte, error) { return status, header, body, nil }
	return WithIdempotency(ctx, &encoded), drop, nil
}

// storeParts stores a body in parts, each in a transaction of its own. The parts that are stored are returned with an error
// too.
func (s *Service) storeParts(ctx context.Context, actor *Actor, keyID string, body []byte) (p bodyParts, err error) {
	random := make([]byte, 16)
	if _, err := io.ReadFull(s.cfg.Random, random); err != nil {
		return p, fmt.Errorf("name the parts of a response: %w", err)
	}
	p.name = fmt.Sprintf("%x", random)
	for part := range slices.Chunk(body, maxWholeBody) {
		err := s.cfg.Store.Update(ctx, func(tx Tx) error {
			w := &work{Tx: tx, actor: actor, bounds: &s.cfg.Bounds, now: s.now()}
			return w.putResponse(ctx, &StoredResponse{KeyID: keyID, Key: p.key(p.number), Body: part, CreatedAt: w.now.Add(partsKept)})
		})
		if err != nil {
			return p, notStored(ctx, err)
		}
		p.number++
	}
	return p, nil
}

// dropParts gives up the parts of a response after its operation has failed with an error, unless the response is stored
// or may be: then, and if dropParts fails, maintenance removes them after a day.
func (s *Service) dropParts(ctx context.Context, i *Idempotency, p bodyParts, failed error) {
	if ctx.Err() != nil || errors.Is(failed, ErrInDoubt) {
		return
	}
	for n := range p.number {
		err := s.cfg.Store.Update(ctx, func(tx Tx) error {
			r, err := tx.StoredResponse(ctx, i.KeyID, i.Key)
			if err == nil && r.Header[partsHeader] == p.String() {
				return nil
			}
			if err != nil && fault.CodeOf(err) != fault.NotFound {
				return err
			}
			return tx.PutStoredResponse(ctx, &StoredResponse{KeyID: i.KeyID, Key: p.key(n)}) // empty, and to be removed at once
		})
		if err != nil {
			s.cfg.Log.WarnContext(ctx, "could not remove parts of a response that was not stored; they are removed later", "error", err)
			return
		}
	}
}

// assemble puts the body of a stored response together, if it is in parts.
func assemble(ctx context.Context, tx IdempotencyReader, r *StoredResponse) error {
	p, is, err := partsOf(r)
	if err != nil || !is {
		return err
	}
	delete(r.Header, partsHeader)
	for n := range p.number {
		part, err := tx.StoredResponse(ctx, r.KeyID, p.key(n))
		if err != nil {
			return fmt.Errorf("read part %d of %d of a stored response: %v", n, p.number, err) //nolint:errorlint // not the 404 of the call
		}
		r.Body = append(r.Body, part.Body...)
	}
	return nil
}
