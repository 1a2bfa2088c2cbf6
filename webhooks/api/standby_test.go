package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A standby sends each caller to the leader without authentication, and starts
// nothing itself. The address is always one of the leader.
func TestStandbySendsCallersToTheLeader(t *testing.T) {
	leader := "https://berth-2.example.org"
	w := campusWorld(t, func(o *Options) { o.Leader = func() string { return leader } })
	w.ready = false
	jobs := lattice + "/app-instances/train/queue/jobs"
	for _, c := range []struct{ method, target, location string }{
		{http.MethodGet, "/api/v1/apps/catalog?limit=2", "/api/v1/apps/catalog?limit=2"},
		{http.MethodPost, jobs, jobs},
		{http.MethodDelete, jobs + "/12", jobs + "/12"},
		{http.MethodGet, "http://elsewhere.example.org/api/v1/apps/catalog", "/api/v1/apps/catalog"},
	} {
		r := httptest.NewRequest(c.method, c.target, strings.NewReader(`{"script":"#!/bin/sh\n"}`))
		rec := httptest.NewRecorder()
		w.api.ServeHTTP(rec, r)
		require.Equal(t, http.StatusTemporaryRedirect, rec.Code, c.target)
		require.Equal(t, leader+c.location, rec.Header().Get("Location"))
		require.Contains(t, rec.Body.String(), `"code":"leader.elsewhere"`)
	}
	// Below the prefix of an estate, the caller's own path counts.
	r := httptest.NewRequest(http.MethodGet, "/estates/campus/api/v1/apps/catalog", nil)
	rec := httptest.NewRecorder()
	http.StripPrefix("/estates/campus", w.api).ServeHTTP(rec, r)
	require.Equal(t, leader+"/estates/campus/api/v1/apps/catalog", rec.Header().Get("Location"))

	leader = "" // nobody is known to lead
	res := w.get("/api/v1/apps/catalog", personToken(anna))
	require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
	require.NotEmpty(t, res.Header.Get("Retry-After"))
}
