package adminapi

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/fairslots"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/id"
	"github.com/keygate/keygate/internal/ratelimit"
	"github.com/keygate/keygate/internal/repository"
)

// Bounds of push hooks (docs/limits.md). Before a hook is verified, its sender may be anyone, so
// the bounds are for each address, or IPv6 /64. Afterwards they are for each gateway.
const (
	hooksPerAddress = 2 // bodies being read
	hooksInAll      = 8
	hooksWaiting    = 16 // of one address
	hookWait        = 5 * time.Second
	hookRead        = 10 * time.Second // for the whole body

	hooksRefused  = "60/min" // of one address
	hooksAccepted = "60/min" // of one gateway

	hooksMemory = 16 << 20 // bytes to count hooks by address and by gateway
)

// hookBounds holds the bounds of push hooks.
type hookBounds struct {
	bodies            *fairslots.Slots
	refused, accepted *callLimits
}

func newHookBounds(clock func() ratelimit.Instant) *hookBounds {
	budget := ratelimit.NewBudget(hooksMemory)
	return &hookBounds{
		bodies:  fairslots.New(fairslots.Config{PerAccount: hooksPerAddress, All: hooksInAll, Waiting: hooksWaiting, Wait: hookWait}),
		refused: newLimits(clock, hooksRefused, "", budget.Of("addresses")), accepted: newLimits(clock, hooksAccepted, "", budget.Of("gateways")),
	}
}

// hookHeaders are the headers that sign a push hook.
func hookHeaders() []string {
	return []string{"X-Hub-Signature-256", "X-Gitea-Signature", "X-Gitlab-Token"}
}

// admitHook performs the checks of a push hook up to its authentication, which needs the body. What
// it responds does not depend on whether the gateway exists.
func (c *call) admitHook() error {
	bounds := c.api.hooks
	address := c.addressKey()
	var charge ratelimit.Charge
	if status, _ := bounds.refused.decide(&charge, address, false); status.Remaining < 1 {
		return c.tooManyHooks(status.RetryAfter, "too many hooks from this address could not be verified")
	}
	refuse := func() error {
		bounds.refused.decide(&charge, address, true)
		return errHook()
	}
	signed := false
	for _, name := range hookHeaders() {
		signed = signed || len(c.request.Header.Values(name)) == 1
	}
	if !signed {
		return refuse()
	}
	if err := c.readHook(address); err != nil {
		return err
	}
	hook, err := c.api.cfg.Control.FindPushHook(c.ctx, c.params["gateway_id"])
	if err != nil && fault.CodeOf(err) != fault.NotFound {
		return err
	}
	secret := c.api.noSecret // the work is the same without a gateway
	if err == nil {
		secret = string(hook.Secret)
	}
	if !repository.VerifyHook(c.request.Header, c.body, secret) || err != nil {
		return refuse()
	}
	c.hook = hook
	gateway, _ := id.Parse(id.Gateway, c.params["gateway_id"])
	if status, refused := bounds.accepted.decide(&charge, gateway, true); refused {
		return c.tooManyHooks(status.RetryAfter, "too many hooks for this gateway")
	}
	return nil
}

// readHook reads the body, while the call has one of the slots of its address.
func (c *call) readHook(address [16]byte) error {
	tooLarge := fault.New(fault.BodyTooLarge, "the request body must not exceed %d bytes", maxBody)
	if c.request.ContentLength > maxBody {
		return tooLarge
	}
	release, err := c.api.hooks.bodies.Take(c.ctx, string(address[:]))
	if errors.Is(err, fairslots.ErrNone) {
		return c.tooManyHooks(retryAfter, "too many hooks from this address are being read")
	}
	if err != nil {
		return err
	}
	c.held.call = release
	// A connection without deadlines, as in a test, has no pace to keep.
	_ = c.conn.SetReadDeadline(time.Now().Add(hookRead))
	c.body, err = io.ReadAll(io.LimitReader(c.request.Body, maxBody+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fault.New(fault.InvalidRequest, "the request body is incomplete: it arrived too slowly")
	case err != nil:
		return &fault.Error{Code: fault.InvalidRequest, Message: "the request body is incomplete: the connection ended before all of it arrived", Err: err}
	case len(c.body) > maxBody:
		return tooLarge
	}
	return nil
}

// tooManyHooks returns the 429 of a hook. seconds is the Retry-After.
func (c *call) tooManyHooks(seconds int64, what string) error {
	c.header.Set("Retry-After", strconv.FormatInt(max(1, seconds), 10))
	return fault.New(fault.RateLimitExceeded, "%s: retry after the seconds in the Retry-After header", what)
}

// addressKey identifies the client for bounds: by its address, or an IPv6 client by its /64.
func (c *call) addressKey() [16]byte {
	addr, err := netip.ParseAddr(c.api.clientIP(c.request))
	if err != nil {
		return [16]byte{}
	}
	if addr.Is6() {
		if prefix, err := addr.Prefix(64); err == nil {
			addr = prefix.Addr()
		}
	}
	return addr.As16()
}

// checkHookType performs the 415 check of a push hook: JSON, or a form with JSON in payload, which
// GitHub can send too.
func (c *call) checkHookType() error {
	mediaType, _, err := mime.ParseMediaType(c.request.Header.Get("Content-Type"))
	if err != nil || mediaType != jsonType && mediaType != "application/x-www-form-urlencoded" {
		return fault.New(fault.UnsupportedMediaType, "the Content-Type header must be application/json or application/x-www-form-urlencoded")
	}
	return nil
}

// pushedBranch returns the branch that a hook announces, or "" if it names none, and whether it
// announces a push at all.
func (c *call) pushedBranch() (branch string, isPush bool, err error) {
	for _, name := range []string{"X-GitHub-Event", "X-Gitea-Event", "X-Forgejo-Event", "X-Gitlab-Event"} {
		if e := c.request.Header.Get(name); e != "" && e != "push" && e != "Push Hook" {
			return "", false, nil
		}
	}
	content := c.body
	if mediaType, _, _ := mime.ParseMediaType(c.request.Header.Get("Content-Type")); mediaType != jsonType && len(content) > 0 {
		form, err := url.ParseQuery(string(content))
		if err != nil {
			return "", false, fault.New(fault.InvalidRequest, "the request body is not a valid form")
		}
		content = []byte(form.Get("payload"))
	}
	if len(content) == 0 {
		return "", true, nil
	}
	var payload struct {
		Ref string `json:"ref"`
	}
	if err := json.Unmarshal(content, &payload); err != nil {
		return "", false, fault.New(fault.InvalidJSON, "the hook's payload is not valid JSON")
	}
	if payload.Ref == "" {
		return "", true, nil
	}
	branch, isBranch := strings.CutPrefix(payload.Ref, "refs/heads/")
	return branch, isBranch && branch != "", nil
}
