package cluster

import (
	"encoding/json"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"berth/schema"
)

// The example of the documentation is valid by the rules that CUE cannot express. It shows both
// kinds of preemption, of which a config has one.
func TestConfigExampleIsValid(t *testing.T) {
	for _, by := range []string{preemptPartition, preemptQOS} {
		var values map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(configExample), &values))
		values["preemption"].(map[string]any)["by"] = by
		list, field := "partitions", "preempt_mode"
		if by == preemptPartition {
			list, field = "qos", "preempts"
		}
		for _, item := range values[list].([]any) {
			delete(item.(map[string]any), field)
		}
		v := &schema.AppVersion{}
		v.Spec.Version = "24.11"
		v.Spec.Manifest.Roles = map[string]schema.ManifestRole{"controller": {ControlPlane: true}, "worker": {}}
		v.Spec.Manifest.Artifacts = map[string]schema.ManifestArtifact{}
		for i, m := range regexp.MustCompile(`digest: (\S+)`).FindAllStringSubmatch(configExample, -1) {
			v.Spec.Manifest.Artifacts[strconv.Itoa(i)] = schema.ManifestArtifact{Digest: m[1]}
		}
		config, err := json.Marshal(values)
		require.NoError(t, err)
		problems := CheckConfig(v, config).Problems
		require.Empty(t, problems, by)
	}
}
