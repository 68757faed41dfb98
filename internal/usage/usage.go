package usage

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"time"

	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// The meters that Keygate counts by itself. A cost for requests counts instead of 1 for each.
const (
	Requests = ratelimit.Requests
	BytesIn  = ratelimit.BytesIn
	BytesOut = ratelimit.BytesOut
)

// How long records are kept.
const (
	HoursKept = 35 * 24 * time.Hour
	DaysKept  = 400 * 24 * time.Hour
)

// Identity is whose usage a record has, where and when. From and Until are Unix seconds: the hour in which the requests
// began, cut where a window of one of their quotas begins.
type Identity struct {
	Owner, Key, Gateway, Route [16]byte // Owner is zero for a key without one
	From, Until                uint32
}

// Hour returns the Unix second at which the hour of the period begins.
func (i *Identity) Hour() int64 { return int64(i.From - i.From%3600) }

// Compare orders identities: the order of records of one hour.
func (i *Identity) Compare(o *Identity) int {
	return cmp.Or(bytes.Compare(i.Owner[:], o.Owner[:]), bytes.Compare(i.Key[:], o.Key[:]), bytes.Compare(i.Gateway[:], o.Gateway[:]),
		bytes.Compare(i.Route[:], o.Route[:]), cmp.Compare(i.From, o.From), cmp.Compare(i.Until, o.Until))
}

// append appends the identity in a form that sorts as Compare does.
func (i *Identity) append(b []byte) []byte {
	for _, part := range []*[16]byte{&i.Owner, &i.Key, &i.Gateway, &i.Route} {
		b = append(b, part[:]...)
	}
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, i.From), i.Until)
}

// Texts is what a record says beside its identity: of its first request.
type Texts struct {
	ExternalID string // of the owner
	Plan       string // name
	Prefix     string // of the key
}

// Amount is what was used of one meter. Requests is the number of requests that cost more than 0.
type Amount struct {
	Meter           string
	Units, Requests int64
	// Sequence is 1 for the first record of the identity and meter, and one more for each that followed; 0 in a chunk.
	Sequence int64
}

// Use is what was used by requests with one identity. Each meter is there once, with more than 0 units.
type Use struct {
	Identity
	Texts
	Amounts []Amount
}

// isOwn reports whether a meter is one that the costs of routes name, and that Keygate does not count by itself.
func isOwn(meter string) bool { return ratelimit.UseOf(meter) == ratelimit.UseCost }

// Count adds units of a meter that requests have used, if there are any. The name of the meter must not share the memory
// of a request. It returns how many meters of isOwn it adds to the use: 0 or 1.
func (u *Use) Count(meter string, units, requests int64) (added int) {
	if units <= 0 {
		return 0
	}
	if known := u.of(meter); known != nil {
		known.Units += min(units, math.MaxInt64-known.Units) // costs of 2⁵³ − 1 could overflow
		known.Requests += requests
		return 0
	}
	u.Amounts = append(u.Amounts, Amount{Meter: meter, Units: units, Requests: requests})
	if isOwn(meter) {
		return 1
	}
	return 0
}

// Has reports whether there is something of a meter.
func (u *Use) Has(meter string) bool { return u.of(meter) != nil }

// of returns the amount of a meter, or nil.
func (u *Use) of(meter string) *Amount {
	for i := range u.Amounts {
		if a := &u.Amounts[i]; a.Meter == meter {
			return a
		}
	}
	return nil
}

// ID returns the identifier of the record of a meter: 64 hexadecimal digits. It is a hash of the account, the identity, the
// meter and the sequence, so a record has the same one wherever and whenever it is asked for.
func (u *Use) ID(accountID string, a *Amount) string {
	b := u.append(append(make([]byte, 0, 256), accountID...))
	b = binary.BigEndian.AppendUint64(b, uint64(a.Sequence))
	sum := sha256.Sum256(append(b, a.Meter...))
	return hex.EncodeToString(sum[:])
}

// Record is one usage record: what was used of one meter.
type Record struct {
	ID                 string
	Sequence           int64
	PeriodStart        time.Time
	PeriodEnd          time.Time
	Owner, OwnerID     string // "" for a key without an owner
	KeyID, KeyPrefix   string
	Plan               string // name; "" if there was none
	GatewayID, RouteID string
	Meter              string
	Units, Requests    int64
	Final              bool
	Position           Position // among the final records of its account; zero for an open one
	order              string   // of an open record
}

// record returns the final record of a meter, by its index, at a position.
func (u *Use) record(accountID string, i int, at Position) Record {
	a := &u.Amounts[i]
	return Record{
		ID: u.ID(accountID, a), Sequence: a.Sequence, PeriodStart: time.Unix(int64(u.From), 0).UTC(), PeriodEnd: time.Unix(int64(u.Until), 0).UTC(),
		Owner: u.ExternalID, OwnerID: format(id.Owner, u.Owner), KeyID: format(id.Key, u.Key), KeyPrefix: u.Prefix, Plan: u.Plan,
		GatewayID: format(id.Gateway, u.Gateway), RouteID: format(id.Route, u.Route), Meter: a.Meter, Units: a.Units, Requests: a.Requests,
		Final: true, Position: at,
	}
}

func format(kind id.Kind, u [16]byte) string {
	if u == [16]byte{} {
		return ""
	}
	return id.Format(kind, u)
}

// Position is where a final record is in the order of an account's records: in which block, and which record of it, from 0.
// Blocks are numbered without gaps in the order in which they became final, so nothing ever appears before a position.
type Position struct {
	Block  int64
	Record int
}
