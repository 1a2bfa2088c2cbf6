package daemon

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/reconciler/loop"
	"berth/webhooks/secret"
)

// Webhooks go to the hosts of the section only, and a fault that an operator corrects is tried again.
func TestWebhooksOfRulesFollowTheConfiguration(t *testing.T) {
	require.Nil(t, (*rulesConfig)(nil).sender())
	receiver := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(receiver.Close)
	c := &rulesConfig{Hosts: []string{strings.TrimPrefix(receiver.URL, "https://")}, Addresses: []string{"127.0.0.1/32"},
		Secrets: map[string]secret.Ref{"key": {Env: "BERTH_TEST_UNSET"}}}
	send := c.sender()
	again, err := send(t.Context(), loop.Webhook{URL: "https://elsewhere.example/x"})
	require.ErrorContains(t, err, "elsewhere.example is not one of rules.hosts")
	require.False(t, again)
	for name, want := range map[string]string{"other": "there is no other in rules.secrets", "key": "BERTH_TEST_UNSET"} {
		again, err = send(t.Context(), loop.Webhook{URL: receiver.URL, Secret: name})
		require.ErrorContains(t, err, want)
		require.True(t, again)
	}
	again, err = send(t.Context(), loop.Webhook{URL: receiver.URL}) // its certificate is of no known authority
	require.ErrorContains(t, err, "certificate")
	require.True(t, again)
}
