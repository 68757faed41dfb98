package server

import (
	"context"
	"time"

	"github.com/keygate/keygate/internal/control"
	"github.com/keygate/keygate/internal/gateway"
	"github.com/keygate/keygate/internal/validation"
)

// openDocuments builds what requests are held against, and what counts those that do not meet it.
func (s *Server) openDocuments(ctx context.Context) (err error) {
	s.documents, err = validation.New(validation.Config{
		Read: s.readDocument, Mono: func() time.Duration { return time.Duration(s.clock.Mono()) }, Heavy: s.heavy, Log: s.log,
	})
	if err != nil {
		return err
	}
	s.checker = &validation.Checker{Holder: validation.NewHolder(), Reports: &validation.Reports{}, Now: s.clock.WallTime}
	if s.mismatches, err = validation.NewReporter(validation.ReporterConfig{Reports: s.checker.Reports, Store: s.db, Now: s.clock.WallTime, Log: s.log}); err != nil {
		return err
	}
	s.metrics.Counter("keygate_validation_requests_total", "Requests that were held against the OpenAPI document of their gateway.", func() float64 { return float64(s.checker.Reports.Requests()) })
	s.metrics.Counter("keygate_validation_mismatches_total", "Requests that did not meet the OpenAPI document of their gateway.", func() float64 { return float64(s.checker.Reports.Mismatches()) })
	s.metrics.Gauge("keygate_validation_held_bytes", "Bytes of request bodies that are held until they are checked.", func() float64 { return float64(s.checker.Holder.Bytes()) })
	return s.running.Start(ctx, s.mismatches)
}

// readDocument returns the content of a revision of a gateway; nil if it did not come from an OpenAPI document.
func (s *Server) readDocument(ctx context.Context, gatewayID string, revision int64) (content []byte, err error) {
	err = s.db.Search(ctx, func(tx control.ReadTx) error {
		r, err := tx.Revision(ctx, gatewayID, revision)
		if err == nil && r.Kind == gateway.SpecDocument {
			content = r.Content
		}
		return err
	})
	return content, err
}
