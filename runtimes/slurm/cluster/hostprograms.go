package cluster

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// Programs that Slurm runs as root on workers. Berth never writes one: the administrator of
// the host puts it there, and Berth compares its digest with that of an artifact of the
// version. That keeps no one who has Berth's SSH key from root: slurmd runs what the
// configuration of its controller names, and the key chooses the controller.

// Program is a file in profile.ProgramDir of each worker.
type Program struct {
	Program string `json:"program"`
	Digest  string `json:"digest"` // "sha256:…" of the file
}

// Path returns the path of the program on each worker.
func (p *Program) Path() string { return profile.ProgramDir + "/" + p.Program }

// healthCheck drains a node that is not sound.
type healthCheck struct {
	Program
	IntervalSeconds int    `json:"interval_seconds"`
	Nodes           string `json:"nodes,omitempty"` // empty: any
}

// jobPrograms run on each worker of a job, before the job starts there and after it has ended.
type jobPrograms struct {
	Prolog         *Program `json:"prolog,omitempty"`
	Epilog         *Program `json:"epilog,omitempty"`
	TimeoutSeconds int      `json:"timeout_seconds"`
}

// programs returns the programs by their field.
func (s *Config) programs() map[string]Program {
	all := map[string]Program{}
	if s.HealthCheck != nil {
		all["health_check"] = s.HealthCheck.Program
	}
	if j := s.JobPrograms; j != nil {
		for field, p := range map[string]*Program{"job_programs.prolog": j.Prolog, "job_programs.epilog": j.Epilog} {
			if p != nil {
				all[field] = *p
			}
		}
	}
	return all
}

// programParameters returns the parameters of slurm.conf that name programs.
func (s *Config) programParameters() map[string]string {
	values := map[string]string{}
	if h := s.HealthCheck; h != nil {
		values["HealthCheckProgram"] = h.Path()
		values["HealthCheckInterval"] = fmt.Sprint(h.IntervalSeconds)
		values["HealthCheckNodeState"] = strings.ToUpper(cmp.Or(h.Nodes, "any"))
	}
	if j := s.JobPrograms; j != nil {
		if j.Prolog != nil {
			values["Prolog"] = j.Prolog.Path()
		}
		if j.Epilog != nil {
			values["Epilog"] = j.Epilog.Path()
		}
		values["PrologEpilogTimeout"] = fmt.Sprint(j.TimeoutSeconds)
	}
	return values
}

// programs adds values that the helper would refuse.
func (c *configCheck) programs() {
	values := c.set.programParameters()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !profile.AllowsSlurmConf(name, values[name]) {
			field := "job_programs"
			if strings.HasPrefix(name, "HealthCheck") {
				field = "health_check"
			}
			c.add(field, "%q is not allowed as %s", values[name], name)
		}
	}
}

// artifacts adds the programs whose digest is of no artifact of the version.
func (c *configCheck) artifacts(v *schema.AppVersion) {
	programs := c.set.programs()
	for _, field := range slices.Sorted(maps.Keys(programs)) {
		digest := programs[field].Digest
		if !slices.ContainsFunc(slices.Collect(maps.Values(v.Spec.Manifest.Artifacts)),
			func(a schema.ManifestArtifact) bool { return a.Digest == digest }) {
			c.add(field+".digest", "no artifact of the version has this digest; declare the program in manifest.artifacts")
		}
	}
}

// Programs returns the programs of an instance, sorted by path.
func Programs(config json.RawMessage) []Program {
	set, err := Parse(config)
	if err != nil {
		return nil // an invalid config is refused elsewhere
	}
	return slices.SortedFunc(maps.Values(set.programs()), func(a, b Program) int {
		return cmp.Or(strings.Compare(a.Program, b.Program), strings.Compare(a.Digest, b.Digest))
	})
}

// programNotes says where root runs a program from now on.
func programNotes(before, after *Config) (notes []string) {
	old, now := before.programs(), after.programs()
	for _, n := range [][2]string{{"job_programs.prolog", "before a job that starts from then on, each of its workers runs "},
		{"job_programs.epilog", "after a job that ends from then on, each of its workers runs "}} {
		if p, ok := now[n[0]]; ok && old[n[0]] != p {
			notes = append(notes, n[1]+p.Path()+" as root and drains if it fails")
		}
	}
	return notes
}
