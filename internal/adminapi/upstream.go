package adminapi

import (
	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
)

// UpstreamInput is the optional settings of how a gateway reaches its upstream, in
// the bodies of createGateway and updateGateway. It is exported because schemas leave
// out what is embedded otherwise.
type UpstreamInput struct {
	UpstreamHeaders           optional[map[string]string] `json:"upstream_headers,omitempty" maxProperties:"16" doc:"Headers to set on every forwarded request. Replaces all of them; null removes them. Their values are encrypted at rest and never returned."`
	UpstreamCA                optional[string]            `json:"upstream_ca,omitempty" minLength:"1" doc:"PEM certificates that replace the system's root certificates for this upstream; null restores the system's."`
	UpstreamClientCertificate optional[string]            `json:"upstream_client_certificate,omitempty" minLength:"1" doc:"Client certificate for an https upstream, in PEM, followed by the certificates of its issuers. Requires upstream_client_key; null removes it, and then upstream_client_key must be null too."`
	UpstreamClientKey         optional[string]            `json:"upstream_client_key,omitempty" minLength:"1" doc:"Private key of the client certificate, in PEM without a passphrase. It is encrypted at rest and never returned. If an update has no key, a new certificate must match the stored one."`
	UpstreamConnectTimeout    optional[string]            `json:"upstream_connect_timeout,omitempty" minLength:"1" doc:"Timeout for connecting to the upstream, and again for the TLS handshake, as a Go duration from 100ms to 1m; null restores the default, 10s." example:"2s"`
	UpstreamIdleTimeout       optional[string]            `json:"upstream_idle_timeout,omitempty" minLength:"1" doc:"How long an idle connection to the upstream stays open, as a Go duration from 1s to 1h; null restores the default, 90s." example:"30s"`
	UpstreamMaxConnectionAge  optional[string]            `json:"upstream_max_connection_age,omitempty" minLength:"1" doc:"Age after which a connection to the upstream is not used for new requests, so that a name that moves to another address is followed, as a Go duration from 1s to 24h; null restores the default, 5m." example:"1m"`
	UpstreamMaxConnections    optional[int64]             `json:"upstream_max_connections,omitempty" minimum:"1" maximum:"100000" doc:"Maximum number of open connections to the upstream. Time spent waiting for one counts toward timeout. Null, the default, means unlimited." example:"200"`
}

func (u *UpstreamInput) patch() control.UpstreamPatch {
	return control.UpstreamPatch{
		Headers:           u.UpstreamHeaders.Optional,
		CA:                u.UpstreamCA.Optional,
		ClientCertificate: u.UpstreamClientCertificate.Optional,
		ClientKey:         u.UpstreamClientKey.Optional,
		ConnectTimeout:    u.UpstreamConnectTimeout.Optional,
		IdleTimeout:       u.UpstreamIdleTimeout.Optional,
		MaxConnectionAge:  u.UpstreamMaxConnectionAge.Optional,
		MaxConnections:    u.UpstreamMaxConnections.Optional,
	}
}

// UpstreamRecord is the settings that a gateway's record has only where they are set.
// It is exported as UpstreamInput is.
type UpstreamRecord struct {
	UpstreamClientCertificate string `json:"upstream_client_certificate,omitempty" doc:"Client certificate for the upstream, in PEM, as given. Absent if there is none."`
	UpstreamClientKey         string `json:"upstream_client_key,omitempty" doc:"*** if the client certificate's private key is stored. The key itself is never returned." example:"***"`
	UpstreamConnectTimeout    string `json:"upstream_connect_timeout,omitempty" doc:"Timeout for connecting to the upstream, as a Go duration. Absent for the default, 10s." example:"2s"`
	UpstreamIdleTimeout       string `json:"upstream_idle_timeout,omitempty" doc:"How long an idle connection to the upstream stays open, as a Go duration. Absent for the default, 90s." example:"30s"`
	UpstreamMaxConnectionAge  string `json:"upstream_max_connection_age,omitempty" doc:"Age after which a connection to the upstream is not used for new requests, as a Go duration. Absent for the default, 5m." example:"1m"`
	UpstreamMaxConnections    int64  `json:"upstream_max_connections,omitempty" doc:"Maximum number of open connections to the upstream. Absent for unlimited." example:"200"`
}

func presentUpstream(u *gateway.Upstream) UpstreamRecord {
	r := UpstreamRecord{
		UpstreamClientCertificate: u.TLS.ClientCertificate,
		UpstreamConnectTimeout:    u.Timeouts.Connect,
		UpstreamIdleTimeout:       u.Timeouts.Idle,
		UpstreamMaxConnectionAge:  u.MaxConnectionAge,
		UpstreamMaxConnections:    u.MaxConnections,
	}
	if len(u.TLS.ClientKey) > 0 {
		r.UpstreamClientKey = hidden
	}
	return r
}
