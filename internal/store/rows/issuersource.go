package rows

import (
	"context"

	"github.com/keygate/keygate/internal/issuer"
)

// EachIssuer implements snapshot.IssuerSource. f must not wait for another reading call of the store.
func (s *Store) EachIssuer(ctx context.Context, f func(*issuer.Issuer) error) error {
	err := s.engine.Read(ctx, ChangedStreams, func(t *Reader) error {
		return t.StreamIssuers(ctx, "", nil, f, func(_ string, err error) error { return Decoded(err) })
	})
	return s.engine.OfRecord(err)
}

// IssuerByID implements snapshot.IssuerSource.
func (s *Store) IssuerByID(ctx context.Context, issuerID string) (*issuer.Issuer, error) {
	i, err := read(ctx, s, Changed, func(t *Reader) (*issuer.Issuer, error) {
		return readOne(ctx, t, "issuer", issuerColumns+`WHERE id = $1`, []any{issuerID}, scanIssuer)
	})
	return i, s.engine.OfRecord(err)
}

// StreamIssuers calls f for each issuer that the rest of the query selects, and bad for one that cannot be decoded. It
// stops at the first error of either, and returns it.
func (t *Reader) StreamIssuers(ctx context.Context, rest string, args []any, f func(*issuer.Issuer) error, bad func(issuerID string, err error) error) error {
	return t.stream(ctx, "stream issuers", issuerColumns+rest, args, func(r *Row) (failed, err error) {
		i, err := scanIssuer(r)
		switch {
		case err == nil:
			return f(&i), nil
		case i.ID == "":
			return nil, Decoded(err)
		default:
			return bad(i.ID, err), nil
		}
	})
}
