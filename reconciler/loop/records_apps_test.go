package loop

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/decide"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/audit"
	"berth/schema/authority"
)

// Requirement B5: a merged change that a service account may not make, because its App
// does not require the permission, has an audit record with the rule and the App's line.
func TestRefusalByAnAppIsAudited(t *testing.T) {
	head := func(k schema.Key, fields ...schema.FieldPos) schema.Header {
		path, err := k.Path()
		require.NoError(t, err)
		return schema.Header{Key: k, File: path, Fields: fields}
	}
	key, train := schema.Key{Kind: schema.KindServiceAccount, Tenant: "physics", Project: "lab", Name: "ci"},
		schema.InstanceKey("physics", "lab", "train")
	account := &schema.ServiceAccount{Header: head(key), Spec: schema.ServiceAccountSpec{
		PublicKeys: []schema.PublicKey{{ID: "a", Key: "ssh-ed25519 AAAA"}}, Scopes: []string{"apps.instance.update"}}}
	app := &schema.App{Header: head(schema.Key{Kind: schema.KindApp, Name: "batch"},
		schema.FieldPos{Path: "spec.requires.permissions", Line: 9, Column: 5}),
		Spec: schema.AppSpec{Requires: schema.AppRequires{Permissions: []string{"apps.instance.read"}}}}
	project := &schema.ProjectEstate{Name: "lab", ServiceAccounts: map[string]*schema.ServiceAccount{"ci": account},
		Instances: map[string]*schema.Instance{"train": {Header: head(train),
			Spec: schema.InstanceSpec{App: "batch", OperatorServiceAccount: "ci"}}},
		Roles: &schema.RoleBinding{Header: head(schema.Key{Kind: schema.KindRoleBinding, Tenant: "physics", Project: "lab", Name: "roles"}),
			Spec: schema.RoleBindingSpec{Members: []schema.RoleMember{{ServiceAccount: "ci", Role: "service_account"}}}}}
	d := &schema.Desired{Platform: &schema.Platform{Apps: map[string]*schema.App{"batch": app}},
		Tenants: map[string]*schema.TenantEstate{"physics": {Name: "physics", Projects: map[string]*schema.ProjectEstate{"lab": project}}}}

	ci := authority.Actor{ServiceAccount: key, Proof: authority.ProofSignature}
	r := recorder{now: func() time.Time { return time.Unix(0, 0) }}
	records := func() []audit.Record {
		ds := authority.Decide(authority.Rules{Base: d}, ci,
			authority.Needs(d, d, train, schema.PathChange{Path: project.Instances["train"].File, From: "a", To: "b"}))
		require.Len(t, ds, 1)
		v := decide.Verdict{Commit: "c1", By: ci,
			Document: plan.DocumentChange{Key: train, File: project.Instances["train"].File, Change: "changed"}, Authority: ds}
		if !ds[0].Allowed {
			v.Held = &schema.Held{Key: train, Reason: schema.HeldUnauthorised, Message: ds[0].Message()}
		}
		return r.decisionRecords([]decide.Verdict{v}, "base", decide.Decision{Desired: d})
	}
	got := records()
	require.Len(t, got, 1)
	require.Equal(t, audit.Denied, got[0].Verdict)
	require.Equal(t, "app_requires", got[0].Rule)
	require.Equal(t, "platform/catalog/batch/app.yaml:9", got[0].Source)
	require.Equal(t, "apps.instance.update", got[0].Permission)
	require.Equal(t, "ServiceAccount physics.lab/ci", got[0].Actor)
	require.Contains(t, got[0].Reason, "operates units of the app batch, which does not require apps.instance.update")

	app.Spec.Requires.Permissions = append(app.Spec.Requires.Permissions, "apps.instance.update")
	require.Equal(t, audit.Allowed, records()[0].Verdict)
}
