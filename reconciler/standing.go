package reconciler

import (
	"encoding/json"
	"maps"
	"slices"

	"berth/reconciler/plan"
	"berth/schema"
)

// What is declared and carries others, a SharedRuntime and its attachments, has
// a life of its own on berth/status although no runtime can make one yet: it is
// requested while it is declared, and gone when it is not (requirements D1, D2).

// standing is the detail of their statuses: by the names of their events.
type standing struct {
	AppSlug           string `json:"app_slug"`
	ProjectID         string `json:"project_id,omitempty"` // of an attachment
	OperatingMode     string `json:"operating_mode"`
	ControlPlaneScope string `json:"control_plane_scope"`
	RuntimeBackend    string `json:"runtime_backend"`
	BillingPolicyRef  string `json:"billing_policy_ref,omitempty"`
	Declared          string `json:"declared"` // blob of the document
}

// standings are the shared runtimes and attachments that are in force of an
// owner: a tenant, or "", the platform.
func standings(d *schema.Desired, owner string) map[schema.Key]standing {
	out := map[schema.Key]standing{}
	add := func(all map[string]*schema.SharedRuntimeEstate) {
		for _, s := range all {
			if s.Runtime == nil {
				continue
			}
			spec := &s.Runtime.Spec
			of := standing{AppSlug: spec.App, OperatingMode: spec.OperatingMode, ControlPlaneScope: spec.ControlPlaneScope, Declared: s.Runtime.Blob}
			if v := d.Version(spec.App, spec.Version); v != nil {
				of.RuntimeBackend = v.Spec.RuntimeBackend
			}
			out[s.Runtime.Key] = of
			for _, a := range s.Attachments {
				at := of
				at.ProjectID, at.BillingPolicyRef, at.Declared = a.Spec.ProjectID, a.Spec.BillingPolicyRef, a.Blob
				out[a.Key] = at
			}
		}
	}
	if owner == "" {
		add(d.Platform.SharedRuntimes)
	}
	if t := d.Tenants[owner]; t != nil {
		add(t.SharedRuntimes)
	}
	return out
}

// stood is the standings of whose estate changed since last, and those that are
// gone since.
func stood(last, d *schema.Desired) (now map[schema.Key]standing, gone []schema.Key) {
	now = map[schema.Key]standing{}
	for _, owner := range changedOwners(last, d) {
		maps.Copy(now, standings(d, owner))
		if last == nil {
			continue
		}
		for k := range standings(last, owner) {
			if _, ok := now[k]; !ok {
				gone = append(gone, k)
			}
		}
	}
	return now, gone
}

// stand records the standings of a decision. Who calls it holds writer.whole.
func (r *Reconciler) stand(st *state) {
	now, gone := stood(r.writer.stood, st.desired)
	if r.writer.stood == nil {
		for _, s := range r.writer.thingsOf(schema.KindSharedRuntime, schema.KindAttachment) {
			if _, ok := now[s.Key]; !ok {
				gone = append(gone, s.Key) // while no daemon ran
			}
		}
	}
	r.writer.stood = st.desired
	for _, key := range slices.SortedFunc(maps.Keys(now), schema.Key.Compare) {
		prev := r.writer.thing(key)
		next := plan.ThingStatus{
			APIVersion: schema.APIVersion, Kind: string(key.Kind) + "Status", Key: key, Phase: "requested",
			Revision: st.main, CorrelationID: correlation(st.main),
		}
		next.Detail, _ = json.Marshal(now[key]) // strings only
		if prev != nil && prev.Phase == next.Phase && equalJSON(prev.Detail, next.Detail) {
			next.Revision, next.CorrelationID = prev.Revision, prev.CorrelationID
		}
		const why = "no runtime of this Berth can carry several projects yet"
		next.Conditions = []plan.Condition{
			{Type: "Ready", Status: "False", Reason: "NotSupported", Message: why, Revision: next.Revision},
			{Type: "Reconciling", Status: "False", Reason: "NotSupported", Revision: next.Revision},
			{Type: "Stalled", Status: "True", Reason: plan.CodeShared, Message: why, Revision: next.Revision},
		}
		r.writer.setThing(prev, next)
	}
	slices.SortFunc(gone, schema.Key.Compare)
	for _, key := range gone {
		prev := r.writer.thing(key)
		if prev == nil {
			continue
		}
		phases := []string{"deleting", "deleted"}
		if key.Kind == schema.KindAttachment {
			phases = []string{"detached"}
		}
		for _, phase := range phases { // nothing was made of it that would have to go first
			next := *prev
			next.Phase, next.Revision, next.CorrelationID = phase, st.main, correlation(st.main)
			r.writer.setThing(prev, next)
			prev = r.writer.thing(prev.Key)
		}
		r.writer.forgetThing(prev)
	}
}
