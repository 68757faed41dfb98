package adminapi

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/sso"
	"github.com/keygate/keygate/internal/user"
)

const (
	htmlType = "text/html"
	formType = "application/x-www-form-urlencoded"

	deviceGrant = "urn:ietf:params:oauth:grant-type:device_code" // RFC 8628, section 3.4
	clientID    = "keygate-cli"                                  // of command lines
)

type redeemCodeRequest struct {
	Code         string  `json:"code" minLength:"43" maxLength:"43" doc:"What the browser has brought."`
	CodeVerifier string  `json:"code_verifier" minLength:"43" maxLength:"128" doc:"What code_challenge of the sign-in is the SHA-256 of (RFC 7636)."`
	RedirectURI  string  `json:"redirect_uri" minLength:"1" maxLength:"100" doc:"The redirect_uri of the sign-in." example:"http://127.0.0.1:41777/callback"`
	Machine      *string `json:"machine,omitempty" nullable:"true" maxLength:"100" doc:"Name of the machine, for the list of the user's tokens." example:"ada-laptop"`
}

type beginDeviceRequest struct {
	ClientID *string `json:"client_id,omitempty" nullable:"true" doc:"keygate-cli, if given (RFC 8628)." example:"keygate-cli"`
	Scope    *string `json:"scope,omitempty" nullable:"true" maxLength:"1000" doc:"Passed over: the token allows what the role of the user allows."`
	Machine  *string `json:"machine,omitempty" nullable:"true" maxLength:"100" doc:"Name of the machine, which the user sees before it approves." example:"build-7"`
}

type redeemDeviceRequest struct {
	GrantType  string  `json:"grant_type" doc:"urn:ietf:params:oauth:grant-type:device_code." example:"urn:ietf:params:oauth:grant-type:device_code"`
	DeviceCode string  `json:"device_code" minLength:"1" maxLength:"255" doc:"The device code."`
	ClientID   *string `json:"client_id,omitempty" nullable:"true" doc:"keygate-cli, if given." example:"keygate-cli"`
}

// deviceAuthorizationRecord has the fields of RFC 8628, section 3.2.
type deviceAuthorizationRecord struct {
	DeviceCode      string `json:"device_code" doc:"What the device asks with. It is a secret."`
	UserCode        string `json:"user_code" doc:"What the user types in the dashboard." example:"WDJB-MJHT"`
	VerificationURI string `json:"verification_uri" doc:"Where the user types it. No link has the code in it." example:"https://keygate.example.com/device"`
	ExpiresIn       int    `json:"expires_in" doc:"Seconds until both codes expire." example:"600"`
	Interval        int    `json:"interval" doc:"Seconds to wait between two questions." example:"5"`
}

// newTokenRecord has the fields of RFC 6749, section 5.1, and the token.
type newTokenRecord struct {
	AccessToken string     `json:"access_token" doc:"The token: what a call has in place of a key. It is returned only once." example:"kgs_4tQx9ZexampleexampleexampleexAmple"`
	TokenType   string     `json:"token_type" enum:"Bearer" doc:"How it is sent: in Authorization: Bearer."`
	ExpiresIn   int        `json:"expires_in" doc:"Seconds until it expires." example:"43200"`
	TokenID     string     `json:"token_id" doc:"Identifier of the token." example:"tok_01jz8y5c3te9b8r2m6q4v7x0dd"`
	ExpiresAt   time.Time  `json:"expires_at" doc:"When it expires."`
	User        UserRecord `json:"user" doc:"Whose token it is."`
}

type deviceRecord struct {
	UserCode  string    `json:"user_code" doc:"What the user has typed." example:"WDJB-MJHT"`
	Address   string    `json:"address" doc:"Address of the client that began the sign-in." example:"203.0.113.7"`
	Machine   *string   `json:"machine" doc:"What the client says of its machine, which may be untrue; null if it says nothing." example:"build-7"`
	State     string    `json:"state" enum:"pending,approved,denied" doc:"Whether the user has decided."`
	CreatedAt time.Time `json:"created_at" doc:"When it began."`
	ExpiresAt time.Time `json:"expires_at" doc:"Until when it can be approved."`
}

type decideDeviceRequest struct {
	UserCode string `json:"user_code" minLength:"1" maxLength:"32" doc:"What the device shows, in any case and with or without the hyphen." example:"WDJB-MJHT"`
	Approve  bool   `json:"approve" doc:"true gives the device a token of the calling user; false denies it."`
}

func presentDevice(l *user.Login) deviceRecord {
	return deviceRecord{
		UserCode: user.ShownUserCode(l.UserCode), Address: l.Address, Machine: optionalText(l.Machine), State: string(l.State), CreatedAt: l.CreatedAt.UTC(), ExpiresAt: l.ExpiresAt.UTC(),
	}
}

func presentNewToken(t *control.NewUserToken) newTokenRecord {
	return newTokenRecord{
		AccessToken: t.Secret, TokenType: "Bearer", ExpiresIn: int(t.ExpiresAt.Sub(t.CreatedAt) / time.Second), TokenID: t.ID, ExpiresAt: t.ExpiresAt.UTC(), User: presentUser(&t.User),
	}
}

func (a *API) loginOperations() []operation {
	failures := []int{http.StatusForbidden, http.StatusNotFound, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusTooManyRequests, http.StatusServiceUnavailable}
	const rfc = " The body is a form, as RFC 8628 says, or a JSON object. Needs no key."
	return []operation{{
		id: "redeemSignInCode", method: http.MethodPost, path: signInPath + "/token", tag: "Account",
		summary: "Get a token for the code of a sign-in",
		description: "For command lines: exchanges the code that a browser has brought from a sign-in with redirect_uri for a token of the user, once, within 2 minutes. " +
			"A code that is presented with another verifier or redirect_uri than its own is used up. Failed attempts count as those to sign in do. Needs no key.",
		public: true, maxBody: 4 << 10, body: reflect.TypeFor[redeemCodeRequest](), success: http.StatusOK, result: reflect.TypeFor[newTokenRecord](),
		errors: append([]int{http.StatusBadRequest, http.StatusUnauthorized}, failures...),
		run:    takes(a.redeemSignInCode),
	}, {
		id: "beginDevice", method: http.MethodPost, path: devicePath, tag: "Account",
		summary: "Begin the sign-in of a device",
		description: "For command lines on machines without a browser (RFC 8628): returns a code that a user types in the dashboard, and one with which the device asks for its token." + rfc +
			" At most 20 devices of an address, and 1,000 in all, wait for a user.",
		public: true, oauth: true, maxBody: 4 << 10, body: reflect.TypeFor[beginDeviceRequest](), bodyOptional: true, success: http.StatusOK, result: reflect.TypeFor[deviceAuthorizationRecord](),
		errors: append([]int{http.StatusBadRequest}, failures...),
		run:    takes(a.beginDevice),
	}, {
		id: "redeemDevice", method: http.MethodPost, path: devicePath + "/token", tag: "Account",
		summary: "Get the token of a device",
		description: "For command lines (RFC 8628): returns a token of the user who has approved the device, once. Until then it is 400 with the error authorization_pending, or slow_down for a device that asks too often; " +
			"access_denied, expired_token and invalid_grant end the sign-in." + rfc,
		public: true, oauth: true, maxBody: 4 << 10, body: reflect.TypeFor[redeemDeviceRequest](), success: http.StatusOK, result: reflect.TypeFor[newTokenRecord](),
		errors: append([]int{http.StatusBadRequest}, failures...),
		run:    takes(a.redeemDevice),
	}, {
		id: "getDevice", method: http.MethodGet, path: devicePath, tag: "Account",
		summary: "Get a device that waits for a user",
		description: "Returns where the device is that waits with a user code, so that the user compares it. Needs the session of a user. " +
			"After 10 wrong codes of a user in a minute, further ones are 429.",
		query:    []queryParam{{name: "user_code", doc: "What the device shows, in any case and with or without the hyphen.", schema: textSchema(), example: "WDJB-MJHT", required: true}},
		anyScope: true, success: http.StatusOK, result: reflect.TypeFor[deviceRecord](), errors: []int{http.StatusForbidden, http.StatusNotFound},
		run: a.getDevice,
	}, {
		id: "decideDevice", method: http.MethodPost, path: devicePath + "/approve", tag: "Account",
		summary: "Approve or deny a device",
		description: "Approves the sign-in of a device, which then gets a token of the calling user, or denies it. Needs the session of a user, whatever its role. " +
			"To approve, the user must have authenticated after the device began, and within 5 minutes: otherwise it is 403 with the code reauthentication_required. Wrong codes count as with GET.",
		anyScope: true, body: reflect.TypeFor[decideDeviceRequest](), success: http.StatusOK, result: reflect.TypeFor[deviceRecord](), errors: []int{http.StatusForbidden, http.StatusNotFound},
		run: takes(a.decideDevice),
	}}
}

// fromClient returns what is recorded of a request without a credential.
func (c *call) fromClient() control.FromClient {
	return control.FromClient{Method: c.request.Method, Path: c.request.URL.EscapedPath(), ClientIP: c.api.clientIP(c.request), RequestID: c.requestID}
}

func (a *API) redeemSignInCode(c *call, req redeemCodeRequest) (response, error) {
	if c.invalid != nil {
		return response{}, c.invalid
	}
	if a.cfg.SSO == nil {
		return response{}, noProvider()
	}
	from := c.fromClient()
	client := networkOf(from.ClientIP)
	at, until := a.signIns.begin(client, a.cfg.Now)
	if !until.IsZero() {
		return response{}, tooManySignIns(until)
	}
	c.presented.given = true // failed attempts are recorded
	made, err := a.cfg.Control.RedeemCode(c.ctx, &control.Redemption{
		FromClient: from, Code: req.Code, Verifier: req.CodeVerifier, RedirectURI: req.RedirectURI, Machine: value(req.Machine),
	})
	if fault.CodeOf(err) != fault.Unauthorized {
		a.signIns.forgive(client, at)
	}
	if err == nil {
		c.signedIn(made)
	}
	return show(presentNewToken)(made, err)
}

// signedIn notes for the audit record of the call who has signed in.
func (c *call) signedIn(t *control.NewUserToken) {
	c.presented = presentedKey{given: true, account: t.Account, userID: t.UserID, prefix: t.Prefix}
}

// checkClientID returns the error of RFC 6749, section 5.2, for a client that is not known.
func checkClientID(given *string) error {
	if given == nil || *given == clientID {
		return nil
	}
	return fault.New(fault.InvalidClient, "the client_id must be %s", clientID)
}

func (a *API) beginDevice(c *call, req beginDeviceRequest) (response, error) {
	if c.invalid != nil {
		return response{}, c.invalid
	}
	if a.cfg.SSO == nil {
		return response{}, noProvider()
	}
	if err := checkClientID(req.ClientID); err != nil {
		return response{}, err
	}
	from := c.fromClient()
	return show(func(d *control.NewDevice) deviceAuthorizationRecord {
		return deviceAuthorizationRecord{
			DeviceCode: d.DeviceCode, UserCode: user.ShownUserCode(d.UserCode), VerificationURI: strings.TrimSuffix(a.cfg.SSO.RedirectURL(), callbackPath) + devicePage,
			ExpiresIn: int(d.ExpiresAt.Sub(d.CreatedAt) / time.Second), Interval: int(d.Interval / time.Second),
		}
	})(a.cfg.Control.BeginDevice(c.ctx, &control.DeviceRequest{FromClient: from, Network: networkOf(from.ClientIP).String(), Machine: value(req.Machine)}))
}

func (a *API) redeemDevice(c *call, req redeemDeviceRequest) (response, error) {
	switch {
	case c.invalid != nil:
		return response{}, c.invalid
	case a.cfg.SSO == nil:
		return response{}, noProvider()
	case req.GrantType != deviceGrant:
		return response{}, fault.New(fault.UnsupportedGrantType, "the grant_type must be %s", deviceGrant)
	}
	if err := checkClientID(req.ClientID); err != nil {
		return response{}, err
	}
	from := c.fromClient()
	client := networkOf(from.ClientIP)
	// Only what fails is counted: many devices of one address may wait.
	if until := a.signIns.attempt(client, a.cfg.Now, func() (failed bool) { return false }); !until.IsZero() {
		return response{}, tooManySignIns(until)
	}
	made, err := a.cfg.Control.RedeemDevice(c.ctx, &from, req.DeviceCode)
	switch fault.CodeOf(err) {
	case fault.InvalidGrant:
		a.signIns.attempt(client, a.cfg.Now, func() (failed bool) { return true })
	case fault.AccessDenied, fault.ExpiredToken:
		c.presented.given = true // a failed sign-in is recorded
	}
	if err == nil {
		c.signedIn(made)
	}
	return show(presentNewToken)(made, err)
}

// typed runs an operation with the user code that the calling user has typed. After too many wrong codes it is 429.
func (c *call) typed(run func() (*user.Login, error)) (response, error) {
	if c.invalid != nil {
		return response{}, c.invalid
	}
	codes, by := c.api.codes, c.actor.CredentialID()
	at, until := codes.begin(by, c.api.cfg.Now)
	if !until.IsZero() {
		return response{}, &fault.Error{
			Code:    fault.RateLimitExceeded,
			Message: "you have typed too many wrong codes: at most 10 in a minute; retry after the seconds in the Retry-After header",
			Limit:   &fault.Limit{Limit: signInFailures, ResetAt: ceilSecond(until), Scope: "user"},
		}
	}
	l, err := run()
	if fault.CodeOf(err) != fault.NotFound {
		codes.forgive(by, at)
	}
	return show(presentDevice)(l, err)
}

func (a *API) getDevice(c *call) (response, error) {
	return c.typed(func() (*user.Login, error) { return a.cfg.Control.Device(c.ctx, &c.actor, c.query.Get("user_code")) })
}

func (a *API) decideDevice(c *call, req decideDeviceRequest) (response, error) {
	return c.typed(func() (*user.Login, error) {
		return a.cfg.Control.DecideDevice(c.ctx, &c.actor, req.UserCode, req.Approve)
	})
}

// codeParams are the query parameters with which a command line begins a sign-in (RFC 8252, RFC 7636).
func codeParams() []queryParam {
	return []queryParam{
		{name: "redirect_uri", doc: "For command lines: where the browser takes a code, at 127.0.0.1 or [::1] with any port and the path /callback.", schema: textSchema(), example: "http://127.0.0.1:41777/callback", check: sso.CheckRedirectURI},
		{name: "state", doc: "With redirect_uri: 43 characters that come back with the code.", schema: textSchema(), check: sso.CheckRandom("state")},
		{name: "code_challenge", doc: "With redirect_uri: the SHA-256 of the code verifier, in base64url.", schema: textSchema(), check: sso.CheckRandom("code_challenge")},
		enumParam("code_challenge_method", "With redirect_uri: S256.", "S256"),
	}
}

// codeRequest returns what a command line asks for; nil if the browser signs in for itself.
func (c *call) codeRequest() (*sso.CommandLine, error) {
	l := &sso.CommandLine{RedirectURI: c.query.Get("redirect_uri"), State: c.query.Get("state"), Challenge: c.query.Get("code_challenge")}
	method := c.query.Get("code_challenge_method")
	if *l == (sso.CommandLine{}) && method == "" {
		return nil, nil //nolint:nilnil // see above
	}
	var missing []error
	for _, p := range [...][2]string{{"redirect_uri", l.RedirectURI}, {"state", l.State}, {"code_challenge", l.Challenge}, {"code_challenge_method", method}} {
		if p[1] == "" {
			missing = append(missing, fault.Invalid(p[0], "is required for the sign-in of a command line: add it to the query"))
		}
	}
	for _, name := range [...]string{"return_to", "invitation"} {
		if c.query.Has(name) {
			missing = append(missing, fault.Invalid(name, "must not be given for the sign-in of a command line: sign in to the dashboard with it first"))
		}
	}
	return l, fault.Join(missing...)
}

// codePage returns the page from which the user takes a code to the command line that waits for it. It does not go there by
// itself: another program of the machine may have begun the sign-in, and sent the browser here.
func (c *call) codePage(l *sso.CommandLine, code string, u *user.User) response {
	to := l.RedirectURI + "?" + url.Values{"code": {code}, "state": {l.State}}.Encode()
	c.header.Set("Content-Type", "text/html; charset=utf-8")
	c.header.Set("Content-Security-Policy", pagePolicy)
	c.header.Set("Referrer-Policy", "no-referrer")
	return response{status: http.StatusOK, raw: fmt.Appendf(nil, `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Sign in to the command line</title></head>
<body><main><h1>Sign in to the command line</h1><p>The program that waits at %s on this computer gets the rights of <b>%s</b> for 12 hours.</p>
<p>If you have not just run <code>keygate login --sso</code> here, close this page.</p>
<p><a href="%s" rel="noreferrer">Sign in</a></p></main></body></html>
`, html.EscapeString(strings.TrimSuffix(strings.TrimPrefix(l.RedirectURI, "http://"), "/callback")), html.EscapeString(u.Label()), html.EscapeString(to))}
}
