package adminapi

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/keygate/keygate/internal/account"
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/cookie"
	"github.com/keygate/keygate/internal/fault"
	"github.com/keygate/keygate/internal/sso"
)

// The paths of a sign-in.
const (
	signInPath   = "/v1/session/sso"
	callbackPath = signInPath + "/callback"
	devicePath   = "/v1/session/device"
	devicePage   = "/device" // of the dashboard, where a user types the code of a device
)

type signInProviderRecord struct {
	Name        *string `json:"name" doc:"Name of the identity provider: the host of its URL; null if users do not sign in through one." example:"login.example.com"`
	RedirectURI *string `json:"redirect_uri" doc:"Redirect URI of Keygate, which has to be registered at the provider; null without one." example:"https://keygate.example.com/v1/session/sso/callback"`
}

func (a *API) signInOperations() []operation {
	failures := []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusTooManyRequests, http.StatusServiceUnavailable}
	return []operation{{
		id: "beginSignIn", method: http.MethodGet, path: signInPath, tag: "Account",
		summary: "Sign in through the identity provider",
		description: "For browsers: sends them to the identity provider, which sends them back to the callback. " +
			"404 if the server has no --sso-issuer. With redirect_uri, state and code_challenge it signs in a command line on the machine of the browser (RFC 8252): " +
			"the user authenticates anew, and the callback gives a code for POST /v1/session/sso/token in place of a session. Needs no key.",
		query: append([]queryParam{
			{name: "return_to", doc: "Path of the dashboard to go to afterwards, with one slash at its beginning.", schema: textSchema(), example: "/keys", check: sso.CheckReturnTo},
			boolParam("reauthenticate", "If true, the user has to authenticate anew, as changes of users and keys of the level account require."),
			{name: "invitation", doc: "Secret of an invitation.", schema: textSchema(), example: "…", check: func(value string) error {
				if len(value) != sessionValueLen {
					return fault.Invalid("invitation", "is not that of a link: copy the whole link")
				}
				return nil
			}},
		}, codeParams()...),
		public: true, page: true, success: http.StatusFound, hasLocation: true, errors: failures,
		run: a.beginSignIn,
	}, {
		id: "finishSignIn", method: http.MethodGet, path: callbackPath, tag: "Account",
		summary: "Finish a sign-in through the identity provider",
		description: "For browsers, which come from the identity provider: creates a session in place of a former one, and goes to return_to. " +
			"Who may not sign in gets 403, and the message and the audit log say why. Failed attempts count as those with a key do. Needs no key.",
		query: []queryParam{
			{name: "state", doc: "Which sign-in it is.", schema: textSchema()}, {name: "code", doc: "What the provider gives a token for.", schema: textSchema()},
			{name: "iss", doc: "The identity provider.", schema: textSchema()}, {name: "error", doc: "Why the provider refuses.", schema: textSchema()},
		},
		anyQuery: true, public: true, page: true, success: http.StatusFound, hasLocation: true, errors: failures,
		pageOK: "For a command line: a page from which the user takes a code to it.",
		run:    a.finishSignIn,
	}, {
		id: "getSignInProvider", method: http.MethodGet, path: signInPath + "/provider", tag: "Account",
		summary: "Get the identity provider", description: "Returns through which identity provider users sign in. Needs no key.",
		public: true, success: http.StatusOK, result: reflect.TypeFor[signInProviderRecord](),
		run: func(*call) (response, error) {
			if a.cfg.SSO == nil {
				return ok(signInProviderRecord{}), nil
			}
			return ok(signInProviderRecord{Name: new(a.cfg.SSO.Name()), RedirectURI: new(a.cfg.SSO.RedirectURL())}), nil
		},
	}}
}

func noProvider() error {
	return fault.New(fault.NotFound, "users cannot sign in through an identity provider: the server has no --sso-issuer; sign in with a key")
}

// invitationLink returns the link of an invitation.
func (a *API) invitationLink(secret string) string {
	if a.cfg.SSO == nil {
		return ""
	}
	return strings.TrimSuffix(a.cfg.SSO.RedirectURL(), "/callback") + "?invitation=" + url.QueryEscape(secret)
}

func (a *API) beginSignIn(c *call) (response, error) {
	if a.cfg.SSO == nil {
		return response{}, noProvider()
	}
	if home := c.otherOrigin(); home != "" {
		return response{status: http.StatusFound, raw: []byte{}}.with("Location", home), nil
	}
	commandLine, err := c.codeRequest()
	if err != nil {
		return response{}, err
	}
	r := &sso.Request{
		ReturnTo: c.query.Get("return_to"), Invitation: c.query.Get("invitation"), Reauthenticate: c.query.Get("reauthenticate") == "true" || commandLine != nil, CommandLine: commandLine,
	}
	if value := c.sessionValue(); value != "" {
		r.Previous = sha256.Sum256([]byte(value))
	}
	c.header.Set("Referrer-Policy", "no-referrer") // the URL may have an invitation
	location, value, err := a.cfg.SSO.Begin(c.ctx, r)
	if err != nil {
		return response{}, err
	}
	return response{status: http.StatusFound, raw: []byte{}}.with("Location", location).with("Set-Cookie", c.signInCookie(value).String()), nil
}

// otherOrigin returns the URL of the call at the origin of the redirect URI, if the browser has used another name of loopback:
// its cookie would not come with the callback.
func (c *call) otherOrigin() string {
	to, err := url.Parse(c.api.cfg.SSO.RedirectURL())
	if err != nil {
		return ""
	}
	if !isLoopback(c.host()) || !isLoopback(to.Host) || withPort(c.host(), to.Scheme) == withPort(to.Host, to.Scheme) {
		return ""
	}
	to.Path = strings.TrimSuffix(to.Path, "/callback")
	to.RawQuery = c.request.URL.RawQuery
	return to.String()
}

// isLoopback reports whether a host, perhaps with a port, is loopback.
func isLoopback(host string) bool {
	name := (&url.URL{Host: host}).Hostname()
	addr, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// signInCookie returns the cookie of a sign-in; with an empty value, one that removes it. It comes with the browser's way
// back from the provider, which is another site.
func (c *call) signInCookie(value string) *http.Cookie {
	k := c.sessionCookie(value, sso.FlowLifetime) //nolint:gosec // it has set HttpOnly and, over TLS, Secure; SameSite is Lax on purpose
	k.SameSite = http.SameSiteLaxMode
	if k.Name = cookie.SignIn; c.secure() {
		k.Name = cookie.SecureSignIn
	}
	return k
}

func (a *API) finishSignIn(c *call) (response, error) {
	if a.cfg.SSO == nil {
		return response{}, noProvider()
	}
	c.presented.given = true // failed attempts are recorded
	client := networkOf(a.clientIP(c.request))
	at, until := a.signIns.begin(client, a.cfg.Now)
	if !until.IsZero() {
		return response{}, tooManySignIns(until)
	}
	result, err := a.vouchedFor(c)
	if err != nil {
		a.forgiveOutage(client, at, err)
		return response{}, err
	}
	if result.CommandLine != nil {
		return a.finishForCode(c, result, client, at)
	}
	value, session, err := a.cfg.Control.SignInUser(c.ctx, &result.UserSignIn)
	if err != nil {
		a.forgiveOutage(client, at, err)
		return response{}, err
	}
	a.signIns.succeeded(client)
	c.presented.userID, c.presented.account = session.UserID, session.Account
	c.header.Add("Set-Cookie", c.signInCookie("").String())
	c.header.Add("Set-Cookie", c.sessionCookie(value, control.SessionLifetime).String())
	return response{status: http.StatusFound, raw: []byte{}}.with("Location", "/"+strings.TrimPrefix(result.ReturnTo, "/")+signedIn), nil
}

// finishForCode ends the sign-in of a command line.
func (a *API) finishForCode(c *call, result *sso.Result, client netip.Prefix, at time.Time) (response, error) {
	l := result.CommandLine
	code, u, err := a.cfg.Control.SignInForCode(c.ctx, &result.UserSignIn, &control.CodeRequest{RedirectURI: l.RedirectURI, Challenge: l.Challenge})
	if err != nil {
		a.forgiveOutage(client, at, err)
		return response{}, err
	}
	a.signIns.succeeded(client)
	c.presented.userID, c.presented.account = u.ID, &account.Account{ID: u.AccountID}
	c.header.Add("Set-Cookie", c.signInCookie("").String())
	return c.codePage(l, code, u), nil
}

// forgiveOutage does not count an attempt that failed because something is down.
func (a *API) forgiveOutage(client netip.Prefix, at time.Time, err error) {
	if code := fault.CodeOf(err); code == fault.Unavailable || code == fault.Internal {
		a.signIns.forgive(client, at)
	}
}

// vouchedFor returns whom the provider vouches for, and how the sign-in began.
func (a *API) vouchedFor(c *call) (*sso.Result, error) {
	name := cookie.SignIn
	if c.secure() {
		name = cookie.SecureSignIn
	}
	flow := ""
	if found := c.request.CookiesNamed(name); len(found) == 1 {
		flow = found[0].Value
	}
	result, err := a.cfg.SSO.Finish(c.ctx, flow, c.query)
	if err != nil {
		return nil, err
	}
	result.FromClient = c.fromClient()
	return result, nil
}

// signedIn ends the URL to which a browser goes, so that the dashboard knows that it has a session.
const signedIn = "#signed-in"

// wantsPage reports whether the client is a browser that shows the response.
func (c *call) wantsPage() bool {
	return strings.Contains(c.request.Header.Get("Accept"), "text/html")
}

// pagePolicy lets an error page do nothing.
const pagePolicy = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// failPage writes an error as a page with its message. content is the error as JSON.
func (a *API) failPage(w http.ResponseWriter, c *call, status int, content []byte) {
	var e struct {
		Message string `json:"message"`
		Field   string `json:"field"`
	}
	_ = json.Unmarshal(content, &e) // our own
	if e.Field != "" {
		e.Message = e.Field + " " + e.Message
	}
	home := "/"
	if a.cfg.BasePath != "" {
		home = a.cfg.BasePath
	}
	c.header.Set("Content-Type", "text/html; charset=utf-8")
	c.header.Set("Content-Security-Policy", pagePolicy)
	c.header.Set("Referrer-Policy", "no-referrer")
	a.write(w, status, fmt.Appendf(nil, `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Not signed in</title></head>
<body><main><h1>Not signed in</h1><p>%s.</p><p>Request: <code>%s</code></p><p><a href="%s">Back to Keygate</a></p></main></body></html>
`, html.EscapeString(e.Message), html.EscapeString(c.requestID), html.EscapeString(home)))
}
