package slurm

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/reconciler/plan"
	"berth/runtimes"
	"berth/runtimes/slurm/profile"
	"berth/schema"
)

// Programs that Slurm runs as root on workers. Berth never writes one: the administrator of
// the host puts it there, and Berth compares its digest with that of an artifact of the
// version. That keeps no one who has Berth's SSH key from root: slurmd runs what the
// configuration of its controller names, and the key chooses the controller.

// hostProgram is a file in profile.ProgramDir of each worker.
type hostProgram struct {
	Program string `json:"program"`
	Digest  string `json:"digest"` // "sha256:…" of the file
}

func (p *hostProgram) path() string { return profile.ProgramDir + "/" + p.Program }

// healthCheck drains a node that is not sound.
type healthCheck struct {
	hostProgram
	IntervalSeconds int    `json:"interval_seconds"`
	Nodes           string `json:"nodes,omitempty"` // empty: any
}

// jobPrograms run on each worker of a job, before the job starts there and after it has ended.
type jobPrograms struct {
	Prolog         *hostProgram `json:"prolog,omitempty"`
	Epilog         *hostProgram `json:"epilog,omitempty"`
	TimeoutSeconds int          `json:"timeout_seconds"`
}

// programs returns the programs by their field.
func (s *settings) programs() map[string]hostProgram {
	all := map[string]hostProgram{}
	if s.HealthCheck != nil {
		all["health_check"] = s.HealthCheck.hostProgram
	}
	if j := s.JobPrograms; j != nil {
		for field, p := range map[string]*hostProgram{"job_programs.prolog": j.Prolog, "job_programs.epilog": j.Epilog} {
			if p != nil {
				all[field] = *p
			}
		}
	}
	return all
}

// programParameters returns the parameters of slurm.conf that name programs.
func (s *settings) programParameters() map[string]string {
	values := map[string]string{}
	if h := s.HealthCheck; h != nil {
		values["HealthCheckProgram"] = h.path()
		values["HealthCheckInterval"] = fmt.Sprint(h.IntervalSeconds)
		values["HealthCheckNodeState"] = strings.ToUpper(cmp.Or(h.Nodes, "any"))
	}
	if j := s.JobPrograms; j != nil {
		if j.Prolog != nil {
			values["Prolog"] = j.Prolog.path()
		}
		if j.Epilog != nil {
			values["Epilog"] = j.Epilog.path()
		}
		values["PrologEpilogTimeout"] = fmt.Sprint(j.TimeoutSeconds)
	}
	return values
}

// checkPrograms adds values that the helper would refuse.
func (s *settings) checkPrograms(c *configProblems) {
	values := s.programParameters()
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

// checkArtifacts adds the programs whose digest is of no artifact of the version.
func (s *settings) checkArtifacts(c *configProblems, v *schema.AppVersion) {
	programs := s.programs()
	for _, field := range slices.Sorted(maps.Keys(programs)) {
		digest := programs[field].Digest
		if !slices.ContainsFunc(slices.Collect(maps.Values(v.Spec.Manifest.Artifacts)), func(a schema.ManifestArtifact) bool { return a.Digest == digest }) {
			c.add(field+".digest", "no artifact of the version has this digest; declare the program in manifest.artifacts")
		}
	}
}

// programsOf returns the programs of an instance, sorted by path.
func programsOf(config json.RawMessage) []hostProgram {
	set, err := parseSettings(config)
	if err != nil {
		return nil // an invalid config is refused elsewhere
	}
	return slices.SortedFunc(maps.Values(set.programs()), func(a, b hostProgram) int {
		return cmp.Or(strings.Compare(a.Program, b.Program), strings.Compare(a.Digest, b.Digest))
	})
}

// programPaths returns the paths of programs after that of their directory; nil: there are none.
func programPaths(programs []hostProgram) []string {
	var paths []string
	for _, p := range programs {
		paths = append(paths, p.path())
	}
	if len(paths) > 0 {
		paths = append([]string{profile.ProgramDir}, slices.Compact(paths)...)
	}
	return paths
}

// programFault returns why a file or directory below ProgramDir cannot be used: it is missing,
// another account than root can change it, or it is not the program of the version.
func programFault(node string, programs []hostProgram, st runtimes.FileStat) error {
	want := "file"
	if st.Path == profile.ProgramDir {
		want = "dir"
	}
	if st.Type != want || st.UID != 0 || st.Mode&0o022 != 0 || st.Mode&0o100 == 0 {
		return fmt.Errorf("%s on %s is not a %s that only root can change and run; put it there as root with mode 0755", st.Path, node, want)
	}
	if want == "file" && st.SHA256 == "" {
		return fmt.Errorf("%s on %s has %d bytes, and berth-host compares files of up to 1 MiB; put a script there that starts it", st.Path, node, st.Size)
	}
	for _, p := range programs {
		if p.path() == st.Path && "sha256:"+st.SHA256 != p.Digest {
			return fmt.Errorf("%s on %s is not the program of the version, whose digest is %s; put that one there", st.Path, node, p.Digest)
		}
	}
	return nil
}

// checkPrograms returns an error if the host of a member lacks a program of u. Without its
// health check slurmd goes on without a word, and without a prolog it drains its node.
func (c hardware) checkPrograms(ctx context.Context, u *plan.Unit, m plan.Member) error {
	programs := programsOf(u.Effective.Config)
	paths := programPaths(programs)
	if len(paths) == 0 {
		return nil
	}
	res, err := c.worker(m).do(ctx, statOp(paths...))
	if err != nil {
		return err
	}
	for _, st := range res[0].Stats {
		if err := programFault(m.Node, programs, st); err != nil {
			return err
		}
	}
	return nil
}

// checkNewPrograms checks the workers for programs that the record's unit does not have, before
// slurm.conf names them.
func (c hardware) checkNewPrograms(ctx context.Context, after *plan.Unit) error {
	if slices.Equal(programsOf(after.Effective.Config), programsOf(c.rec.Unit.Effective.Config)) {
		return nil
	}
	return c.onWorkers(ctx, func(ctx context.Context, _ site, m plan.Member) error { return c.checkPrograms(ctx, after, m) })
}

// programNotes says where root runs a program from now on.
func programNotes(before, after *settings) (notes []string) {
	old, now := before.programs(), after.programs()
	for _, n := range [][2]string{{"job_programs.prolog", "before a job that starts from then on, each of its workers runs "}, {"job_programs.epilog", "after a job that ends from then on, each of its workers runs "}} {
		if p, ok := now[n[0]]; ok && old[n[0]] != p {
			notes = append(notes, n[1]+p.path()+" as root and drains if it fails")
		}
	}
	return notes
}
