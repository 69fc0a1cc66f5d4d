"""Programs in the way of Stable-Baselines3's documentation: networks and sb3-contrib.

`{library}` is where the algorithms come from, `{contrib}` where those of sb3-contrib do.
"""

from __future__ import annotations

NETWORK_PROGRAMS = {
    "networks_of_other_sizes": """
        import gymnasium as gym
        import torch as th
        from {library} import PPO, SAC

        policy_kwargs = dict(activation_fn=th.nn.ReLU, net_arch=dict(pi=[32, 32], vf=[16]))
        model = PPO("MlpPolicy", "CartPole-v1", policy_kwargs=policy_kwargs, n_steps=32)
        model.learn(64)
        model.save("ppo_sizes")
        del model
        model = PPO.load("ppo_sizes", env=gym.make("CartPole-v1"))
        shapes = {{name: tuple(x.shape) for name, x in model.policy.state_dict().items()}}
        assert shapes["mlp_extractor.policy_net.2.weight"] == (32, 32)
        assert shapes["value_net.weight"] == (1, 16)
        model = SAC("MlpPolicy", "Pendulum-v1", policy_kwargs=dict(net_arch=dict(pi=[8], qf=[4])))
        assert tuple(model.policy.state_dict()["critic.qf0.0.weight"].shape) == (4, 4)
    """,
    "features_extractor": """
        import gymnasium as gym
        import torch as th
        import torch.nn as nn
        from {library} import PPO
        from stable_baselines3.common.envs import FakeImageEnv
        from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

        class CustomCNN(BaseFeaturesExtractor):
            def __init__(self, observation_space: gym.spaces.Box, features_dim: int = 256):
                super().__init__(observation_space, features_dim)
                n_input_channels = observation_space.shape[0]
                assert n_input_channels == 1
                self.cnn = nn.Sequential(
                    nn.Conv2d(n_input_channels, 8, kernel_size=8, stride=4),
                    nn.ReLU(),
                    nn.Flatten(),
                )
                with th.no_grad():
                    sample = th.as_tensor(observation_space.sample()[None]).float()
                    n_flatten = self.cnn(sample).shape[1]
                self.linear = nn.Sequential(nn.Linear(n_flatten, features_dim), nn.ReLU())

            def forward(self, observations: th.Tensor) -> th.Tensor:
                assert observations.max() <= 1.0
                return self.linear(self.cnn(observations))

        policy_kwargs = dict(
            features_extractor_class=CustomCNN,
            features_extractor_kwargs=dict(features_dim=16),
        )
        env = FakeImageEnv(screen_height=40, screen_width=40, n_channels=1, discrete=True)
        model = PPO("CnnPolicy", env, policy_kwargs=policy_kwargs, n_steps=16, verbose=0)
        model.learn(16)
        weights = model.policy.state_dict()
        assert tuple(weights["features_extractor.linear.0.weight"].shape)[0] == 16
    """,
    "images_of_fewer_features": """
        from {library} import A2C
        from stable_baselines3.common.envs import FakeImageEnv

        env = FakeImageEnv(screen_height=40, screen_width=40, n_channels=1, discrete=True)
        policy_kwargs = dict(features_extractor_kwargs=dict(features_dim=32))
        model = A2C("CnnPolicy", env, policy_kwargs=policy_kwargs).learn(10)
        assert tuple(model.policy.state_dict()["action_net.weight"].shape) == (6, 32)
        model = A2C("MlpPolicy", env).learn(10)
        assert "mlp_extractor.policy_net.0.weight" in model.policy.state_dict()
    """,
    "images": """
        from {library} import DQN
        from stable_baselines3.common.env_util import make_vec_env
        from stable_baselines3.common.envs import FakeImageEnv
        from stable_baselines3.common.vec_env import VecFrameStack

        kwargs = dict(screen_height=40, screen_width=40, n_channels=1, discrete=True)
        vec_env = make_vec_env(FakeImageEnv, n_envs=2, env_kwargs=kwargs)
        vec_env = VecFrameStack(vec_env, n_stack=4)
        model = DQN("CnnPolicy", vec_env, learning_starts=20, batch_size=8, buffer_size=200)
        model.learn(total_timesteps=40)
        obs = vec_env.reset()
        assert model.predict(obs, deterministic=True)[0].shape == (2,)
    """,
    "other_optimizer": """
        import torch as th
        from {library} import A2C, DQN

        adam = dict(weight_decay=0.1)
        policy_kwargs = dict(optimizer_class=th.optim.AdamW, optimizer_kwargs=adam)
        model = A2C("MlpPolicy", "CartPole-v1", policy_kwargs=policy_kwargs, use_rms_prop=False)
        before = model.policy.state_dict()["action_net.weight"].clone()
        model.learn(50)
        assert not th.equal(before, model.policy.state_dict()["action_net.weight"])
        DQN("MlpPolicy", "CartPole-v1", policy_kwargs=policy_kwargs, learning_starts=20).learn(60)
    """,
}

CONTRIB_PROGRAMS = {
    "tqc": """
        from {contrib} import TQC

        policy_kwargs = dict(n_critics=2, n_quantiles=5, net_arch=[8])
        model = TQC(
            "MlpPolicy",
            "Pendulum-v1",
            top_quantiles_to_drop_per_net=2,
            batch_size=16,
            policy_kwargs=policy_kwargs,
        )
        model.learn(total_timesteps=130, log_interval=4)
        model.save("tqc_pendulum")
        model = TQC.load("tqc_pendulum")
        assert abs(model.predict(model.observation_space.sample())[0]) <= 2
    """,
    "qrdqn": """
        from {contrib} import QRDQN

        policy_kwargs = dict(n_quantiles=10)
        model = QRDQN("MlpPolicy", "CartPole-v1", policy_kwargs=policy_kwargs, verbose=0)
        model.learn(total_timesteps=130, log_interval=4)
        model.save("qrdqn_cartpole")
        assert QRDQN.load("qrdqn_cartpole").num_timesteps == 132
    """,
    "crossq": """
        from {contrib} import CrossQ

        kwargs = dict(policy_kwargs=dict(net_arch=[8]), batch_size=16, learning_starts=20)
        model = CrossQ("MlpPolicy", "Pendulum-v1", verbose=0, **kwargs)
        model.learn(total_timesteps=40, log_interval=4)
        model.save("crossQ_pendulum")
        assert CrossQ.load("crossQ_pendulum").num_timesteps == 40
    """,
    "recurrent": """
        import numpy as np
        from {contrib} import RecurrentPPO
        from stable_baselines3.common.evaluation import evaluate_policy

        kwargs = dict(n_steps=32, batch_size=32, policy_kwargs=dict(lstm_hidden_size=8))
        model = RecurrentPPO("MlpLstmPolicy", "CartPole-v1", verbose=0, **kwargs)
        model.learn(64)
        vec_env = model.get_env()
        mean_reward, std_reward = evaluate_policy(model, vec_env, n_eval_episodes=2, warn=False)
        model.save("ppo_recurrent")
        model = RecurrentPPO.load("ppo_recurrent")
        obs = vec_env.reset()
        lstm_states = None
        num_envs = 1
        episode_starts = np.ones((num_envs,), dtype=bool)
        for _ in range(20):
            action, lstm_states = model.predict(
                obs, state=lstm_states, episode_start=episode_starts, deterministic=True
            )
            obs, rewards, dones, info = vec_env.step(action)
            episode_starts = dones
        assert len(lstm_states) == 2 and lstm_states[0].shape[1:] == (1, 8)
    """,
}

MASKED = """
    import gymnasium as gym
    import numpy as np
    from {contrib} import MaskablePPO

    class Valid(gym.Env):
        observation_space = gym.spaces.Box(0, 1, (3,), np.float32)
        action_space = gym.spaces.Discrete(3)

        def reset(self, seed=None, options=None):
            super().reset(seed=seed)
            self.valid = int(self.np_random.integers(3))
            self.steps = 0
            return self.action_masks().astype(np.float32), {{}}

        def step(self, action):
            assert action == self.valid
            self.valid = int(self.np_random.integers(3))
            self.steps += 1
            return self.action_masks().astype(np.float32), 1.0, False, self.steps == 10, {{}}

        def action_masks(self):
            return np.arange(3) == self.valid

    model = MaskablePPO("MlpPolicy", Valid(), n_steps=32, gamma=0.4, verbose=0)
    model.learn(64)
    model.save("ppo_mask")
    model = MaskablePPO.load("ppo_mask")
    env = Valid()
    obs, _ = env.reset()
    for _ in range(5):
        action, _states = model.predict(obs, action_masks=env.action_masks())
        obs, reward, terminated, truncated, info = env.step(action)
    assert model.num_timesteps == 64
"""
CONTRIB_PROGRAMS["masks"] = MASKED
