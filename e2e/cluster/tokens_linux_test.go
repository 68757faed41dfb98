package cluster

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/keygate/keygate/client"
	"github.com/keygate/keygate/internal/token/tokentest"
)

const (
	tokenManagers = 3 // goroutines that deny tokens

	// tokenLifetime is longer than a token is in use before it is denied.
	tokenLifetime = 10 * time.Minute
)

// tokenIssuer is an issuer of a fleet. Its keys are given by hand.
type tokenIssuer struct {
	id, url string
	signer  *tokentest.Signer
}

// newTokenIssuer creates the issuer, for gateways that name login.
func (f *fleet) newTokenIssuer(api *client.Client) {
	f.Helper()
	i := &tokenIssuer{url: "https://login.example", signer: tokentest.New([32]byte{1})}
	i.id = must(f, func() (*client.Issuer, error) {
		return api.CreateIssuer(f.Context(), client.CreateIssuerRequest{Name: "login", Issuer: i.url, JWKS: []byte(i.signer.JWKS()), Audiences: []string{"api"}})
	}).IssuerID
	f.issuer = i
}

// manageTokens mints a token, denies it by its subject or its identifier, and so on.
func (l *load) manageTokens(number int) {
	i := l.f.issuer
	random, anyAPI := l.apis(managers + number)
	for n := 0; l.ctx.Err() == nil; n++ {
		subject, jti, ends := fmt.Sprintf("subject %d of %d", n, number), fmt.Sprintf("token %d of %d", n, number), time.Now().Add(tokenLifetime)
		t := &liveKey{id: jti, secret: i.signer.Token(i.url, time.Now(), map[string]any{"sub": subject, "jti": jti, "exp": ends.Unix()})}
		l.mu.Lock()
		l.live = append(l.live, t)
		l.mu.Unlock()
		l.wait(time.Duration(random.IntN(200)) * time.Millisecond) // some tokens are remembered when they are denied, and others are not
		t.ends.Store(true)
		until := ends.UTC().Format(time.RFC3339)
		in := client.CreateDenialRequest{Subject: &subject, Until: &until}
		if random.IntN(2) == 0 {
			in.Subject, in.Jti = nil, &jti
		}
		for {
			_, err := anyAPI().CreateDenial(l.f.Context(), i.id, in)
			if err == nil || l.f.Context().Err() != nil {
				break
			}
			l.judge(err)
		}
		l.denials.Add(1)
		l.ended(t, denied)
	}
}

// anyLoopback returns an address of this machine. Nodes do not check more tokens of an address of which many have failed.
func anyLoopback() string {
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250))
}
