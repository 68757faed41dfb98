package snapshot

import (
	"cmp"
	"strings"

	"github.com/keygate/keygate/internal/addrlist"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/gateway"
)

// Requests says how a gateway reads the requests of its callers, and what ends an exchange.
type Requests struct {
	// EncodedSlashes is set if an encoded slash or backslash is a part of its segment.
	EncodedSlashes bool
	// CutStreams is set if long exchanges are cut when their key ends or no longer allows them.
	CutStreams bool
	// KeyHeaders are the headers that may hold the key; nil means Authorization alone.
	KeyHeaders []KeyHeader
	// KeyMessage is the public message of a 401 for a key that is missing or not valid.
	KeyMessage string
	// ErrorFormat is the form of the gateway's own errors.
	ErrorFormat fault.Format
	// ForwardsAuthorization is set if Authorization is not one of the key headers.
	ForwardsAuthorization bool
	// SelfService says what holders of keys may do themselves.
	SelfService gateway.SelfService

	// Addresses are those that may use the gateway; nil for all.
	Addresses *addrlist.List
	// Maintenance is nil if the gateway is not under maintenance.
	Maintenance *Maintenance

	// RequestHeaders and ResponseHeaders are the headers that are set and removed; nil for none.
	RequestHeaders, ResponseHeaders *HeaderRules

	// Withheld are the headers that no upstream gets from a client: the ClaimHeaders, and those that may hold the key.
	// Authorization is not among them: see ForwardsAuthorization.
	Withheld []string
	// ClaimHeaders are the headers that only tokens of the gateway's issuers set, sorted: the first ones of Withheld.
	ClaimHeaders []string
}

// KeyHeader is a header that may hold the key.
type KeyHeader struct {
	Name string
	// Authorization is set for the header of that name, which holds the key after the scheme
	// Bearer. In any other header, the whole value is the key.
	Authorization bool
}

// compileRequests sets what follows from the settings of requests.
func (g *Settings) compileRequests(r *gateway.Requests) {
	g.SelfService, g.auth = r.SelfService, compileAuth(cmp.Or(r.DefaultAuth, gateway.DefaultAuth))
	g.RequestHeaders, g.ResponseHeaders = CompileHeaderRules(r.RequestHeaders), CompileHeaderRules(r.ResponseHeaders)
	g.EncodedSlashes, g.CutStreams = r.AllowEncodedSlashes, !r.KeepStreams
	g.ErrorFormat = cmp.Or(fault.Format(r.ErrorFormat), fault.FormatKeygate)
	headers := r.AllKeyHeaders()
	g.ForwardsAuthorization = !gateway.HasAuthorization(headers)
	ways := make([]string, len(headers))
	for i, name := range headers {
		isAuthorization := strings.EqualFold(name, gateway.Authorization)
		if ways[i] = "in the header " + name; isAuthorization {
			ways[i] = "as Authorization: Bearer <key>"
		} else {
			g.Withheld = append(g.Withheld, name)
		}
		g.KeyHeaders = append(g.KeyHeaders, KeyHeader{Name: name, Authorization: isAuthorization})
	}
	if len(headers) == 1 && !g.ForwardsAuthorization {
		g.KeyHeaders = nil
	}
	g.KeyMessage = "the key is missing or not valid: send it " + strings.Join(ways, " or ")
}
