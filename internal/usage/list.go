package usage

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/traffic"
)

// Filter selects records. "" and the zero time do not filter. Since is inclusive and Until exclusive; both are about the
// start of the period.
type Filter struct {
	Tier                      Tier
	OwnerID, KeyID, GatewayID string
	Meter                     string
	Since, Until              time.Time
}

// Source is where records are read.
type Source interface {
	UsageBlocks(ctx context.Context, q BlockQuery, yield func(*Block) error) error
	UsageEnd(ctx context.Context, accountID string, t Tier) (number int64, err error)
	ReadTraffic(ctx context.Context, q traffic.ChunkQuery, f func(*traffic.Chunk) error) error
}

// blocksAtOnce is how many blocks one call of Source.UsageBlocks reads.
const blocksAtOnce = 32

// String returns the text of a position.
func (p Position) String() string { return fmt.Sprintf("%d.%d", p.Block, p.Record) }

// Next returns the position behind a record at p.
func (p Position) Next() Position { return Position{p.Block, p.Record + 1} }

// ParsePosition is the inverse of Position.String; "" is the first position.
func ParsePosition(s string) (p Position, ok bool) {
	if s == "" {
		return Position{}, true
	}
	block, record, _ := strings.Cut(s, ".")
	var errs [2]error
	p.Block, errs[0] = strconv.ParseInt(block, 10, 64)
	p.Record, errs[1] = strconv.Atoi(record)
	return p, errs == [2]error{} && p.Block >= 0 && p.Record >= 0
}

// Ends returns the position behind all final records of an account and tier.
func Ends(ctx context.Context, source Source, accountID string, t Tier) (Position, error) {
	last, err := source.UsageEnd(ctx, accountID, t)
	return Position{Block: last + 1}, err
}

// matcher is a Filter with parsed identifiers.
type matcher struct {
	*Filter
	owner, key, gateway [16]byte
	none                bool // nothing matches
}

func (f *Filter) matcher() matcher {
	m := matcher{Filter: f}
	for _, one := range []struct {
		text string
		kind id.Kind
		to   *[16]byte
	}{{f.OwnerID, id.Owner, &m.owner}, {f.KeyID, id.Key, &m.key}, {f.GatewayID, id.Gateway, &m.gateway}} {
		if one.text == "" {
			continue
		}
		u, ok := id.Parse(one.kind, one.text)
		*one.to = u
		m.none = m.none || !ok
	}
	return m
}

// use reports whether records of u may match.
func (m *matcher) use(u *Use) bool {
	from := time.Unix(int64(u.From), 0)
	return (m.OwnerID == "" || u.Owner == m.owner) && (m.KeyID == "" || u.Key == m.key) && (m.GatewayID == "" || u.Gateway == m.gateway) &&
		(m.Since.IsZero() || !from.Before(m.Since)) && (m.Until.IsZero() || from.Before(m.Until))
}

// times returns the span, in Unix seconds, in which the hours and days begin that may match.
func (m *matcher) times() (from, before int64) {
	before = 1 << 32
	if !m.Since.IsZero() {
		from = m.Since.Unix() - 86400
	}
	if !m.Until.IsZero() {
		before = m.Until.Unix() + 1
	}
	return from, before
}

// Final calls yield for each final record of an account that f selects from one position to another, in their order, until
// yield returns false. yield must not keep the record. It returns the position at which to go on.
func Final(ctx context.Context, source Source, accountID string, f Filter, from, to Position, yield func(*Record) bool) (Position, error) {
	m := f.matcher()
	if m.none {
		return to, nil
	}
	q := BlockQuery{AccountID: accountID, Tier: f.Tier, First: from.Block, Limit: blocksAtOnce}
	q.From, q.Before = m.times()
	at := from
	for at.Block < to.Block {
		read := 0
		err := source.UsageBlocks(ctx, q, func(b *Block) error {
			read++
			if b.Number >= to.Block {
				return errEnough
			}
			skip := 0
			if b.Number == from.Block {
				skip = from.Record
			}
			at = Position{Block: b.Number}
			err := Each(b.Body, func(u *Use) error {
				use := m.use(u)
				for i := range u.Amounts {
					n := at.Record
					if at.Record++; n < skip || !use || m.Meter != "" && u.Amounts[i].Meter != m.Meter {
						continue
					}
					if r := u.record(accountID, i, Position{b.Number, n}); !yield(&r) {
						return errEnough
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			at = Position{Block: b.Number + 1}
			return nil
		})
		if errors.Is(err, errEnough) {
			return at, nil
		}
		if err != nil {
			return at, err
		}
		if read < blocksAtOnce {
			break
		}
		q.First = at.Block
	}
	return to, nil
}

var errEnough = errors.New("enough")

// MostOpen is the maximum number of identities whose open records one call of Open reads.
const MostOpen = 1 << 17

// Opened is the open records of an account: what the final records lack so far, in the order of their identities and meters.
// Their sequences are those that they would have if they became final now. They are encoded, since a client may read them
// slowly and they take less memory so.
type Opened struct {
	accountID, meter string // meter filters unless it is ""
	bodies           []Body
}

// Open reads the open records of an account that f selects. If they have more than MostOpen identities, the error is
// fault.ValidationFailed with the field state.
func Open(ctx context.Context, source Source, accountID string, f Filter) (*Opened, error) {
	o := &Opened{accountID: accountID, meter: f.Meter}
	m := f.matcher()
	if m.none || f.Tier != Hours {
		return o, nil
	}
	from, before := m.times()
	var sum Table
	err := source.ReadTraffic(ctx, traffic.ChunkQuery{AccountID: accountID, Part: traffic.Usage, Tier: traffic.Open, From: from, Before: before}, func(c *traffic.Chunk) error {
		return Each(c.Body, func(u *Use) error {
			if m.use(u) {
				sum.Add(u)
			}
			if sum.Len() > MostOpen {
				return fault.Invalid("state", "open has too many records: select some with owner_id, key_id or gateway_id")
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	hours := map[int64]bool{}
	for i := range sum.uses {
		hours[i.Hour()] = true
	}
	for hour := range hours {
		q := BlockQuery{AccountID: accountID, From: hour, Before: hour + 1, Limit: 1 << 30}
		if err := source.UsageBlocks(ctx, q, func(b *Block) error { return sum.Follow(b.Body) }); err != nil {
			return nil, err
		}
	}
	o.bodies = Encode(sum.Finish())
	return o, nil
}

// After calls yield for each record behind a cursor of Record.Cursor, or for all for "", until yield returns false. yield must
// not keep the record.
func (o *Opened) After(cursor string, yield func(*Record) bool) error {
	isBehind := func(i *Identity) bool { return i.order("\x7f") > cursor } // meters are ASCII
	at := sort.Search(len(o.bodies), func(n int) bool { return isBehind(&o.bodies[n].Last) })
	for _, b := range o.bodies[at:] {
		err := Each(b.Bytes, func(u *Use) error {
			if !isBehind(&u.Identity) {
				return nil
			}
			for i := range u.Amounts {
				order := u.order(u.Amounts[i].Meter)
				if order <= cursor || o.meter != "" && u.Amounts[i].Meter != o.meter {
					continue
				}
				r := u.record(o.accountID, i, Position{})
				if r.Final, r.order = false, order; !yield(&r) {
					return errEnough
				}
			}
			return nil
		})
		if errors.Is(err, errEnough) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// order returns a text that sorts as the identity and the meter.
func (i *Identity) order(meter string) string { return hex.EncodeToString(i.append(nil)) + meter }

// Cursor returns the text of the position behind a record: for a final one that of a Position, for an open one that for
// Opened.After.
func (r *Record) Cursor() string {
	if r.Final {
		return r.Position.Next().String()
	}
	return r.order
}
