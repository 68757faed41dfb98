package adminapi

import (
	"net/http"
	"reflect"
	"time"

	"github.com/keygate/keygate/internal/acme"
	"github.com/keygate/keygate/internal/control"
)

type certificateRecord struct {
	CertificateID string     `json:"certificate_id" doc:"Identifier of the certificate." example:"cert_01jz8y5c3te9b8r2m6q4v7x0aa"`
	GatewayID     string     `json:"gateway_id" doc:"Gateway whose hostname it is." example:"gw_01jz8y5c3te9b8r2m6q4v7x0aa"`
	Hostname      string     `json:"hostname" doc:"Hostname that it is for." example:"api.example.com"`
	State         string     `json:"state" enum:"pending,valid,failed,expired" doc:"pending until the first attempt has ended; valid while it is served, whether or not a renewal has failed; failed if there is none, and the last attempt failed; expired if it could not be renewed in time."`
	NotBefore     *time.Time `json:"not_before" doc:"When it began to be valid; null if there is none."`
	NotAfter      *time.Time `json:"not_after" doc:"When it ends; null if there is none."`
	RenewAt       *time.Time `json:"renew_at" doc:"When it will be renewed; null if there is none."`
	NextAttemptAt time.Time  `json:"next_attempt_at" doc:"When the next attempt to get one begins: at renew_at or, after attempts that failed, from a minute to a day after the last one."`
	LastError     *string    `json:"last_error" doc:"Why the last attempt failed; null if it did not." example:"api.example.com does not reach this installation at port 80: its A and AAAA records must lead here"`
	CreatedAt     time.Time  `json:"created_at" doc:"When the gateway asked for it first."`
}

func presentCertificate(a *API, c *acme.Certificate) certificateRecord {
	return certificateRecord{
		CertificateID: c.ID, GatewayID: c.GatewayID, Hostname: c.Hostname, State: string(c.State(a.cfg.Now())), NotBefore: optionalTime(c.NotBefore), NotAfter: optionalTime(c.NotAfter),
		RenewAt: optionalTime(c.RenewAt), NextAttemptAt: c.NextAt.UTC(), LastError: optionalText(c.LastError), CreatedAt: c.CreatedAt.UTC(),
	}
}

func (a *API) certificateResponse(c *acme.Certificate) response { return ok(presentCertificate(a, c)) }

func certificateFilters() []queryParam {
	return []queryParam{
		{name: "hostname", doc: "Only the certificate for exactly this hostname.", schema: textSchema(), example: "api.example.com"},
		{name: "q", doc: "Only certificates whose hostname contains this text.", schema: textSchema(), example: "example"},
	}
}

func (a *API) certificateOperations() []operation {
	record := reflect.TypeFor[certificateRecord]()
	return []operation{{
		id: "listCertificates", method: http.MethodGet, path: "/v1/certificates", tag: "Certificates",
		summary: "List certificates", description: "Returns the certificates by ACME of the account, newest first: one for each gateway with acme.",
		query: append(pageParams(), certificateFilters()...), success: http.StatusOK, result: reflect.TypeFor[list[certificateRecord]](),
		run: a.listCertificates,
	}, {
		id: "getCertificate", method: http.MethodGet, path: "/v1/certificates/{certificate_id}", tag: "Certificates",
		summary: "Get a certificate", description: "Returns one certificate by ACME.",
		success: http.StatusOK, result: record,
		run: a.getCertificate,
	}, {
		id: "renewCertificate", method: http.MethodPost, path: "/v1/certificates/{certificate_id}/renew", tag: "Certificates",
		summary: "Renew a certificate",
		description: "Begins the next attempt to get the certificate within some seconds, whether it is the first one, a renewal, or one that waits because others have failed. " +
			"The present certificate is served until there is a new one. Accounts other than default can do so 5 times a week for a hostname (429).",
		replayable: true, success: http.StatusOK, result: record, errors: []int{http.StatusConflict},
		run: a.renewCertificate,
	}}
}

func (a *API) listCertificates(c *call) (response, error) {
	filter := control.CertificateFilter{Hostname: c.query.Get("hostname"), Query: c.query.Get("q")}
	return page(c, "certificates", c.cursorBinding(certificateFilters()), func(p control.Page) ([]acme.Certificate, error) {
		return a.cfg.Control.Certificates(c.ctx, &c.actor, filter, p)
	}, func(r *acme.Certificate) (string, certificateRecord) { return r.ID, presentCertificate(a, r) })
}

func (a *API) getCertificate(c *call) (response, error) {
	return respond(a.certificateResponse)(a.cfg.Control.Certificate(c.ctx, &c.actor, c.params["certificate_id"]))
}

func (a *API) renewCertificate(c *call) (response, error) {
	return respond(a.certificateResponse)(a.cfg.Control.RenewCertificate(withIdempotency(c, a.certificateResponse), &c.actor, c.params["certificate_id"]))
}
