package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"berth/schema"
	"berth/schema/authority"
)

// movedAccounts warns of Unix users that a change gives to another login, mostly by a mistyped one: the
// files and jobs of the account become that person's.
func movedAccounts(c comparison) (out []schema.Diagnostic) {
	for was, is := range changed[*schema.RoleBinding](c) {
		if was == nil || is == nil {
			continue
		}
		of := map[string]string{}
		for _, m := range was.Spec.Members {
			if m.UnixUser != nil {
				of[m.UnixUser.Name] = m.Login
			}
		}
		for i, m := range is.Spec.Members {
			if m.UnixUser == nil || of[m.UnixUser.Name] == "" || strings.EqualFold(of[m.UnixUser.Name], m.Login) {
				continue
			}
			path := fmt.Sprintf("spec.members[%d].login", i)
			out = append(out, is.Head().Warning(path, "user.login-changed",
				"the Unix user %s, with its files and jobs, passes from %s to %s", m.UnixUser.Name, of[m.UnixUser.Name], m.Login))
		}
	}
	return out
}

// uselessAccounts warns of Unix users that a change puts beside a role that submits no jobs.
func uselessAccounts(c comparison) (out []schema.Diagnostic) {
	for was, is := range changed[*schema.RoleBinding](c) {
		if is == nil || is.Key.Tenant == "" {
			continue
		}
		for i, m := range is.Spec.Members {
			known := was != nil && slices.ContainsFunc(was.Spec.Members, func(o schema.RoleMember) bool {
				return o.UnixUser != nil && o.Login == m.Login && o.Role == m.Role
			})
			if m.UnixUser != nil && !known && !authority.RoleHas(m.Role, authority.QueueSubmit) {
				path := fmt.Sprintf("spec.members[%d].unix_user", i)
				out = append(out, is.Warning(path, "user.no-account", "%s submits no jobs as %s, so the Unix user %s gets no account by it",
					m.Login, m.Role, m.UnixUser.Name))
			}
		}
	}
	return out
}

// changedPrices warns of prices that a change of a rate card replaces: they hold for past days too,
// until their month is closed.
func changedPrices(c comparison) (out []schema.Diagnostic) {
	for was, is := range changed[*schema.RateCard](c) {
		when := "also for the days of months that are not closed; a card with replaces and from changes prices from a day on"
		if was == nil && is != nil && is.Spec.Replaces != "" {
			was, _ = c.after.Document(schema.Key{Kind: schema.KindRateCard, Name: is.Spec.Replaces}).(*schema.RateCard)
			when = "from " + is.Spec.From + " on, in place of the card " + is.Spec.Replaces
		}
		if was == nil || is == nil {
			continue
		}
		if changed := otherPrices(was, is); len(changed) > 0 {
			out = append(out, is.Head().Warning("spec", "rates.changed", "%s, %s", strings.Join(changed, ", "), when))
		}
	}
	return out
}

// otherPrices says which prices of a card another one has differently.
func otherPrices(was, is *schema.RateCard) (changed []string) {
	old, now := pricesOf(was), pricesOf(is)
	for _, p := range now {
		before := p.otherwise
		if i := slices.IndexFunc(old, func(o price) bool { return o.name == p.name }); i >= 0 {
			before = old[i].text
		}
		if before != p.text {
			changed = append(changed, fmt.Sprintf("%s %s → %s", p.name, before, p.text))
		}
	}
	for _, p := range old {
		if !slices.ContainsFunc(now, func(n price) bool { return n.name == p.name }) {
			changed = append(changed, fmt.Sprintf("%s %s → %s", p.name, p.text, p.otherwise))
		}
	}
	return changed
}

// price is a price of a rate card, for people. otherwise is what prices the use in a card without it.
type price struct{ name, text, otherwise string }

func pricesOf(card *schema.RateCard) (all []price) {
	s := &card.Spec
	add := func(name string, p schema.Price, otherwise string) {
		all = append(all, price{name, p.In(s.Currency), otherwise})
	}
	of := func(prefix string, p *schema.Prices, other string) {
		add(prefix+"cpu_hour", p.CPUHour, other)
		add(prefix+"memory_gib_hour", p.MemoryHour, other)
		add(prefix+"other_gpu_hour", p.OtherGPU, other)
		add(prefix+"billing_hour", p.BillingHour, other)
		for _, g := range p.GPUHours {
			add(prefix+g.Type, g.Price, cmp.Or(other, "other_gpu_hour"))
		}
	}
	of("", &s.Prices, "")
	for i := range s.By {
		b, names := &s.By[i], []string(nil)
		for _, n := range [][2]string{{"queue", b.Queue}, {"partition", b.Partition}, {"qos", b.QoS}} {
			if n[1] != "" {
				names = append(names, n[0]+" "+n[1])
			}
		}
		of(strings.Join(names, " and ")+": ", &b.Prices, "as for other jobs")
	}
	return all
}

// otherCards warns of a change of the rate card that prices the use of a shared runtime or of an attachment.
func otherCards(c comparison) (out []schema.Diagnostic) {
	for was, is := range changed[schema.Document](c) {
		from, billed := cardOf(was)
		to, stays := cardOf(is)
		if !billed || !stays || from == to {
			continue
		}
		card := func(d *schema.Desired, name string) *schema.RateCard {
			found, _ := d.Document(schema.Key{Kind: schema.KindRateCard, Name: name}).(*schema.RateCard)
			return found
		}
		old, now := card(c.before, from), card(c.after, to)
		if old == nil || now == nil {
			continue // said elsewhere
		}
		out = append(out, is.Head().Warning("spec.billing_policy_ref", "rates.changed",
			"the rate card %s then prices use, in place of %s: %s", to, from,
			cmp.Or(strings.Join(otherPrices(old, now), ", "), "at the same prices")))
	}
	return out
}

// cardOf returns the name of the rate card that prices the use of a document's unit; false: it has no such field.
func cardOf(d schema.Document) (string, bool) {
	switch d := d.(type) {
	case *schema.Attachment:
		return cmp.Or(d.Spec.BillingPolicyRef, schema.DefaultRates), true
	case *schema.SharedRuntime:
		return cmp.Or(d.Spec.BillingPolicyRef, schema.DefaultRates), true
	}
	return "", false
}

// movedSources warns of a source that gets another host or directory: all artifacts that name it then come from there.
func movedSources(c comparison) (out []schema.Diagnostic) {
	for was, is := range changed[*schema.ArtifactSource](c) {
		if was == nil || is == nil || was.Spec.Host == is.Spec.Host && was.Spec.Directory == is.Spec.Directory {
			continue
		}
		field, note := "spec.host", "check that the same bytes are there"
		switch {
		case was.Spec.Host == is.Spec.Host:
			field = "spec.directory"
		case is.Spec.Credential != "":
			note += fmt.Sprintf(", and that %s may have the secret %s", is.Spec.Host, is.Spec.Credential)
		}
		out = append(out, is.Warning(field, codeSource,
			"%d artifacts, and the app versions that name this source, are then read from %s: %s", artifactsOf(c.after, is),
			cmp.Or(is.Spec.Host, is.Spec.Directory), note))
	}
	return out
}

// artifactsOf counts the artifacts of a source. A source of a tenant hides that of the platform with its name.
func artifactsOf(d *schema.Desired, source *schema.ArtifactSource) (n int) {
	for _, t := range d.Tenants {
		if named := t.ArtifactSources[source.Key.Name]; named != source && (named != nil || source.Key.Tenant != "") {
			continue
		}
		for _, p := range t.Projects {
			for _, a := range p.Artifacts {
				if a.Spec.Source == source.Key.Name {
					n++
				}
			}
		}
	}
	return n
}
