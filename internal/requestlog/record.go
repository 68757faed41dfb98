package requestlog

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/accesslog"
	"github.com/keygate/keygate/internal/apikey"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
)

// Record is the stored form of a request. Request adds the explanation in words.
type Record struct {
	AccountID, ID, GatewayID, RouteID, KeyID string

	Time      time.Time // whole microseconds
	KeyPrefix string
	Method    string
	Path      string
	ClientIP  string
	Status    int
	Duration  time.Duration

	Decision         accesslog.Result
	LimitScope       ratelimit.Scope // set only for accesslog.Limited, like the next three
	Limit, Remaining int64
	PassesAt         int64 // Unix seconds
	UpstreamStatus   int

	Reason accesslog.Reason // of a failure to reach the upstream, or what is wrong with the key
	Detail string           // text of the error behind Reason; for accesslog.Limited, the name of the plan's limit or ""
	Host   string           // that the client addressed, for NoGateway, NoRoute and NoMethod
	Cost   string           // what the request was charged by the rules of its route; see accesslog.Costs

	Token       *accesslog.Token // with whose token it was made; nil without a token
	Side        string           // the upstream that a split decided for; "" without a split
	SideReason  string           // why, in words
	AttemptList string           // the attempts at targets of its upstream, and those that were not tried; see accesslog.Attempts and UntriedOf

	LeftOut int64 // set only when the record is read
}

// Belonging says why a request is in the log.
type Belonging uint8

// The reasons for which a request is in the log.
const (
	NotKept Belonging = iota
	Ended             // it was refused, it failed, or it was admitted and could not go on
	Retried           // none of these, and it had several attempts
	Charged           // none of these, and it has costs
)

// Belongs says whether the request belongs in the log, and why.
func Belongs(e *accesslog.Entry) Belonging {
	r := &e.Record
	switch {
	case r.Part == accesslog.Started:
		return NotKept
	case r.Result == accesslog.NoGateway:
		return Ended
	case r.Account == [16]byte{}:
		return NotKept
	case ended(r.Result, int(r.Status), r.Reason):
		return Ended
	case accesslog.CountAttempts(e.AttemptList) > 1:
		return Retried
	case e.Cost != "":
		return Charged
	}
	return NotKept
}

// ended reports whether a request with an account was refused, failed or could not go on. Filter and the store's query for
// it say the same.
func ended(result accesslog.Result, status int, reason accesslog.Reason) bool {
	return status == 429 || status == 401 || status == 403 || result == accesslog.NoRoute || result == accesslog.NoMethod ||
		status >= 500 || reason.IsAccess() || reason == accesslog.DocumentMismatch
}

// longestPath is the maximum length of a path in a record, in bytes, and ShortPath that of a path that CutPath cuts.
const (
	longestPath = 2 << 10
	ShortPath   = 256
)

// NewRecord returns the record of a request. It does not keep memory of e.
func NewRecord(e *accesslog.Entry) Record {
	path := cut(apikey.Redact(e.Path), longestPath)
	r := Record{
		AccountID: text(id.Account, e.Account), ID: text(id.Request, e.Request),
		GatewayID: text(id.Gateway, e.Gateway), RouteID: text(id.Route, e.Route), KeyID: text(id.Key, e.Key),
		Time: time.UnixMicro(e.Start).UTC(), KeyPrefix: strings.TrimRight(string(e.Prefix[:]), "\x00"),
		Method: strings.Clone(e.MethodName()), Path: path, ClientIP: netip.AddrFrom16(e.Client).Unmap().String(),
		Status: int(e.Status), Duration: time.Duration(e.Duration), Decision: e.Result, UpstreamStatus: int(e.UpstreamStatus),
		Reason: e.Reason, Cost: strings.Clone(e.Cost), AttemptList: strings.Clone(e.AttemptList), Side: strings.Clone(e.Side()), SideReason: strings.Clone(e.SideReason),
	}
	if e.Token != nil {
		r.Token = &accesslog.Token{IssuerID: e.Token.IssuerID, Subject: e.Token.Subject}
	}
	detail := strings.Clone(apikey.Redact(e.Detail))
	if e.Reason == accesslog.NoReason && (e.Result == accesslog.NoGateway || e.Result == accesslog.NoRoute || e.Result == accesslog.NoMethod) {
		r.Host = detail
	} else {
		r.Detail = detail
	}
	if e.Result == accesslog.Limited {
		r.LimitScope, r.Limit, r.Remaining, r.PassesAt = ratelimit.Scope(e.LimitScope), e.Limit, e.Remaining, e.ResetAt
	}
	return r
}

// CutPath cuts the path to ShortPath bytes.
func (r *Record) CutPath() { r.Path = cut(r.Path, ShortPath) }

// What a record takes on disk, in bytes: itself with its identifiers and numbers, and an entry in an index. A record whose other
// texts are longer than shortTexts has pages of their own in SQLite.
const (
	rowBytes   = 350
	indexBytes = 225
	shortTexts = 700
	pageBytes  = 4096
)

// Size returns about what the record takes on disk, in bytes.
func (r *Record) Size() int64 {
	texts := len(r.Method) + len(r.Path) + len(r.Detail) + len(r.Host) + len(r.Cost) + len(r.Side) + len(r.SideReason) + len(r.AttemptList)
	if r.Token != nil {
		texts += len(r.Token.IssuerID) + len(r.Token.Subject)
	}
	size := rowBytes + texts
	if texts > shortTexts {
		size = rowBytes + (1+texts/pageBytes)*pageBytes
	}
	if r.KeyID != "" {
		size += indexBytes
	}
	if r.RouteID != "" {
		size += indexBytes
	}
	return int64(size)
}

// cut returns a copy of the path, of at most n bytes and an ellipsis.
func cut(path string, n int) string {
	if len(path) > n {
		return path[:n] + "…"
	}
	return strings.Clone(path)
}

func text(k id.Kind, u [16]byte) string {
	if u == ([16]byte{}) {
		return ""
	}
	return id.Format(k, u)
}

// Request returns the request, with its decision in words.
func (r *Record) Request() Request {
	credential, token := "", accesslog.Token{}
	switch {
	case r.Token != nil:
		credential, token = "token", *r.Token
	case r.KeyID != "" || r.KeyPrefix != "":
		credential = "key"
	}
	return Request{
		Credential: credential, IssuerID: token.IssuerID, Subject: token.Subject,
		ID: r.ID, AccountID: r.AccountID, Time: r.Time, GatewayID: r.GatewayID, RouteID: r.RouteID, KeyID: r.KeyID, KeyPrefix: r.KeyPrefix,
		Method: r.Method, Path: r.Path, ClientIP: r.ClientIP, Status: r.Status, Host: r.Host,
		DurationMS: float64(r.Duration) / float64(time.Millisecond), Decision: r.decision(), LeftOut: r.LeftOut,
		Side: r.Side, SideReason: r.SideReason,
		Costs: slices.Collect(accesslog.Costs(r.Cost)), Attempts: slices.Collect(accesslog.Attempts(r.AttemptList)),
		Untried: accesslog.UntriedOf(r.AttemptList),
	}
}

// decision returns the decision that ended the request.
func (r *Record) decision() Decision {
	d := Decision{UpstreamStatus: r.UpstreamStatus, Reason: r.Reason.String(), Detail: r.Detail}
	if r.Decision == accesslog.Limited {
		d.LimitName, d.Detail = r.Detail, ""
	}
	say := func(check, code, format string, args ...any) {
		d.Check, d.Code, d.Message = check, code, fmt.Sprintf(format, args...)
	}
	if r.Token != nil && r.ofToken(&d, say) {
		return d
	}
	if r.Reason.IsAccess() {
		r.ended(say)
		return d
	}
	switch r.Decision {
	case accesslog.Malformed:
		if r.Reason == accesslog.DocumentMismatch {
			say("document", string(fault.SchemaMismatch), "the request does not meet the OpenAPI document of the gateway, which enforces it: %s", r.Detail)
			d.Detail = ""
		}
	case accesslog.KeyInvalid:
		code := fault.KeyInvalid
		if r.Reason == accesslog.KeyForToken {
			code = fault.TokenInvalid
		}
		say("key", string(code), "%s", r.invalidKey())
	case accesslog.KeyExpired:
		say("key", string(fault.KeyExpired), "the key %s had expired", r.KeyPrefix)
	case accesslog.WrongGateway:
		say("gateway", string(fault.ScopeInsufficient), "the key %s is restricted to another gateway", r.KeyPrefix)
	case accesslog.OwnerSuspended:
		say("owner", string(fault.OwnerSuspended), "the owner of the key %s was suspended", r.KeyPrefix)
	case accesslog.AddressDenied:
		r.addressDenied(say)
	case accesslog.Maintenance:
		say("maintenance", string(fault.UnderMaintenance), "the gateway was under maintenance, and the address %s was not exempt", r.ClientIP)
	case accesslog.WrongScope:
		say("scope", string(fault.ScopeInsufficient), "the scope of the key %s does not allow %s on this path", r.KeyPrefix, r.Method)
	case accesslog.NoGateway:
		say("host", string(fault.GatewayNotFound), "no gateway of an active account has the host %s, and there is no default gateway", r.Host)
	case accesslog.NoRoute:
		say("route", string(fault.RouteNotFound), "the gateway has no route that matches the path")
	case accesslog.NoMethod:
		say("route", string(fault.MethodNotAllowed), "the gateway has no route for %s on this path", r.Method)
	case accesslog.Limited:
		r.limited(&d)
	case accesslog.Unreachable:
		say("upstream", string(fault.UpstreamUnreachable), "%s", ReasonText(r.Reason, "the upstream could not be reached, or closed the connection before the head of its response"))
	case accesslog.TimedOut:
		say("timeout", string(fault.UpstreamTimeout), "%s", ReasonText(r.Reason, "the upstream did not send the head of a response within the gateway's timeout"))
	case accesslog.Failed:
		code := fault.Internal
		if r.Status == 503 {
			code = fault.Unavailable
		}
		say("internal", string(code), "%s", ReasonText(r.Reason, "Keygate failed: its log has the cause under this request_id"))
	case accesslog.Responded:
		say("route", "responded", "the request was answered by respond of its route with status %d, and did not reach an upstream", r.Status)
	case accesslog.Redirected:
		say("route", "redirected", "the request was redirected by its route with status %d, and did not reach an upstream", r.Status)
	case accesslog.Abandoned:
		say("client", "abandoned", "the client closed its connection before the response began")
	default:
		say("upstream", "upstream_status", "the upstream responded with status %d", r.Status)
	}
	return d
}

// addressDenied says whose lists did not allow the client's address.
func (r *Record) addressDenied(say func(check, code, format string, args ...any)) {
	whose := "the gateway"
	switch r.Reason {
	case accesslog.KeyAddresses:
		whose = "the key " + r.KeyPrefix
	case accesslog.RouteAddresses:
		whose = "the route"
	}
	say("address", string(fault.AddressNotAllowed), "allow_ips and deny_ips of %s do not allow the address %s: change them if it is to be allowed", whose, r.ClientIP)
}

// ofToken says what ended a request that was made with a token, as far as the token did.
func (r *Record) ofToken(d *Decision, say func(check, code, format string, args ...any)) bool {
	const but = "the request was admitted, but before its end "
	switch r.Reason {
	case accesslog.TokenRefused: // the reason is for all who may read the requests of the account
		code := fault.TokenInvalid
		if r.Decision == accesslog.KeyExpired {
			code = fault.TokenExpired
		}
		say("token", string(code), "the token was refused: %s", r.Detail)
		d.Detail = ""
		return true
	case accesslog.KeyWasRevoked:
		say("token", string(fault.TokenInvalid), but+"its token was denied, or the gateway stopped taking tokens of the issuer")
		return true
	case accesslog.KeyHasExpired:
		say("token", string(fault.TokenExpired), but+"its token expired")
		return true
	case accesslog.OwnerWasSuspended:
		say("owner", string(fault.OwnerSuspended), but+"the owner that the token names was suspended")
		return true
	}
	switch r.Decision {
	case accesslog.OwnerSuspended:
		say("owner", string(fault.OwnerSuspended), "the owner that the token names was suspended")
	case accesslog.WrongScope:
		say("scope", string(fault.ScopeInsufficient), "the scopes of the token do not allow %s on this path", r.Method)
	default:
		return false
	}
	return true
}

// invalidKey says what was wrong with the key of a request. A record from before there were reasons for it has none.
func (r *Record) invalidKey() string {
	switch {
	case r.KeyID != "":
		return "the key " + r.KeyPrefix + " had been revoked"
	case r.Reason == accesslog.KeyForToken:
		return "a key was sent, and the route takes only tokens"
	case r.KeyPrefix != "":
		return "a key that begins with " + r.KeyPrefix + " was sent: it is unknown, was revoked more than 24 hours before, or is not a gateway-level key of this account"
	}
	switch r.Reason {
	case accesslog.NoKey:
		return "no key was sent"
	case accesslog.KeyWithoutScheme:
		return "a key was sent in the header Authorization without the scheme Bearer: send Authorization: Bearer KEY"
	case accesslog.KeyInOtherHeader:
		return "a key was sent in a header that this gateway does not read: send it in one of the gateway's key_headers, or add the header to them"
	case accesslog.MistypedKey:
		return "what was sent begins like a key, and its length or checksum does not fit: it was mistyped or cut off"
	case accesslog.NotAKey:
		return "what was sent as a key does not have the form of a key, which begins with kg_, and is not an imported key of this account"
	case accesslog.AddressFailed:
		return "imported keys were not looked up, because 60 requests from this address had failed to authenticate within 60 seconds"
	}
	return "no key was sent, or it does not have the format of a key"
}

// ended says why a request that was admitted could not go on. The texts about keys are completed with
// the time.
func (r *Record) ended(say func(check, code, format string, args ...any)) {
	const but = "the request was admitted, but before its end "
	switch r.Reason {
	case accesslog.KeyWasRevoked:
		say("key", string(fault.KeyInvalid), but+"the key %s was revoked", r.KeyPrefix)
	case accesslog.KeyHasExpired:
		say("key", string(fault.KeyExpired), but+"the key %s expired", r.KeyPrefix)
	case accesslog.KeyNotAllowed:
		say("scope", string(fault.ScopeInsufficient), but+"the key %s was changed, and does not allow it any more", r.KeyPrefix)
	case accesslog.OwnerWasSuspended:
		say("owner", string(fault.OwnerSuspended), but+"the owner of the key %s was suspended", r.KeyPrefix)
	case accesslog.AddressTaken:
		say("address", string(fault.AddressNotAllowed), but+"allow_ips or deny_ips of the gateway or the key were changed, and do not allow the address %s any more", r.ClientIP)
	case accesslog.MaintenanceBegan:
		say("maintenance", string(fault.UnderMaintenance), "the request was admitted, but before it was sent the gateway was put under maintenance")
	case accesslog.GatewayGone:
		say("gateway", string(fault.GatewayNotFound), but+"the gateway was deleted, or its account suspended")
	case accesslog.TargetGone:
		say("upstream", string(fault.UpstreamUnreachable), but+"its target was drained or removed, and the gateway's drain_timeout had passed")
	default:
		say("internal", string(fault.Unavailable), "this node had lost its connection to the database, and could not confirm its configuration")
	}
}

// ReasonText returns the explanation of a reason, without addresses and names. It is other if the
// explanation of the result says enough.
func ReasonText(r accesslog.Reason, other string) string {
	switch r {
	case accesslog.ConnectionRefused:
		return "the upstream refused the connection: nothing listens at the host and port of upstream_url"
	case accesslog.NameNotFound:
		return "the host name in upstream_url does not exist"
	case accesslog.NameLookupFailed:
		return "the host name in upstream_url could not be looked up: the name server failed or did not respond"
	case accesslog.HostUnreachable:
		return "there is no way to the network or machine of the upstream"
	case accesslog.AddressNotAllowed:
		return "the address of the upstream is not allowed for this account"
	case accesslog.ConnectTimeout:
		return "connecting to the upstream, including the TLS handshake, took longer than upstream_connect_timeout or timeout allows"
	case accesslog.NoFreeConnection:
		return "all connections that upstream_max_connections allows were in use until the gateway's timeout"
	case accesslog.NoDescriptors:
		return "Keygate had no free file descriptor for a connection to the upstream"
	case accesslog.TLSFailed:
		return "the TLS handshake with the upstream failed: it may not speak TLS, or may require a client certificate"
	case accesslog.CertificateRejected:
		return "TLS failed: the upstream's certificate is expired, is for another name, or is not signed by a trusted authority (upstream_ca)"
	case accesslog.MalformedResponse:
		return "the upstream sent a malformed response, or does not speak the protocol of upstream_url"
	case accesslog.ResponseTooLarge:
		return "the head of the upstream's response was too large: more than 512 headers or 256 KiB"
	case accesslog.ClosedEarly:
		return "the upstream closed the connection before the head of its response"
	case accesslog.UnexpectedUpgrade:
		return "the upstream changed to a protocol that was not asked for"
	case accesslog.AllDrained:
		return "every target of the upstream was being drained: let one take part again, or add one"
	case accesslog.ForwardingLoop:
		return "the request had already passed through this gateway: upstream_url leads back to it"
	default:
		return other
	}
}

func (r *Record) limited(d *Decision) {
	d.Check, d.Code = "limit", string(fault.RateLimitExceeded)
	d.LimitScope, d.Limit, d.Remaining = r.LimitScope.String(), r.Limit, r.Remaining
	what := r.LimitScope.UsedUp()
	if plan, limit, ok := strings.Cut(d.LimitName, "."); ok {
		what = "the limit " + limit + " of the plan " + plan
	}
	if r.LimitScope.Reported() == ratelimit.ConcurrencyScope { // when a request would have ended is not known
		d.Message = fmt.Sprintf("%s allowed %d, and so many were in flight", what, r.Limit)
		return
	}
	d.PassesAt = time.Unix(r.PassesAt, 0).UTC()
	level := "was used up: 0 left"
	if r.Remaining > 0 { // of a meter of which the request needed more
		level = fmt.Sprintf("had %d left, less than the request needed", r.Remaining)
	}
	d.Message = fmt.Sprintf("%s of %d %s; the request would have passed at %s", what, r.Limit, level, d.PassesAt.Format(time.RFC3339))
}
