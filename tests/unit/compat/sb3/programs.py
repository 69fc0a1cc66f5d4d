"""Programs in the way of Stable-Baselines3's documentation, a text for each.

`{library}` is where the algorithms come from, `{contrib}` where those of sb3-contrib do.
"""

from __future__ import annotations

PROGRAMS = {
    "train_save_load_play": """
        import gymnasium as gym
        from {library} import DQN
        from stable_baselines3.common.evaluation import evaluate_policy

        env = gym.make("CartPole-v1", render_mode="rgb_array")
        model = DQN("MlpPolicy", env, learning_starts=50, verbose=0)
        model.learn(total_timesteps=int(3e2))
        model.save("dqn_cartpole")
        del model

        model = DQN.load("dqn_cartpole", env=env)
        mean_reward, std_reward = evaluate_policy(model, model.get_env(), n_eval_episodes=2)
        assert mean_reward > 0
        vec_env = model.get_env()
        obs = vec_env.reset()
        for _ in range(20):
            action, _states = model.predict(obs, deterministic=True)
            obs, rewards, dones, info = vec_env.step(action)
        assert obs.shape == (1, 4) and len(info) == 1
    """,
    "two_lines": """
        from {library} import A2C

        model = A2C("MlpPolicy", "CartPole-v1").learn(200)
        assert model.num_timesteps == 200
    """,
    "ppo_in_several_environments": """
        from {library} import PPO
        from stable_baselines3.common.env_util import make_vec_env

        vec_env = make_vec_env("CartPole-v1", n_envs=4)
        model = PPO("MlpPolicy", vec_env, n_steps=32, verbose=0)
        model.learn(total_timesteps=256)
        model.save("ppo_cartpole")
        model = PPO.load("ppo_cartpole")
        obs = vec_env.reset()
        for _ in range(5):
            action, _states = model.predict(obs)
            obs, rewards, dones, info = vec_env.step(action)
        assert action.shape == (4,)
    """,
    "environments_in_processes": """
        import gymnasium as gym
        from {library} import PPO
        from stable_baselines3.common.utils import set_random_seed
        from stable_baselines3.common.vec_env import SubprocVecEnv

        def make_env(env_id, rank, seed=0):
            def _init():
                env = gym.make(env_id)
                env.reset(seed=seed + rank)
                return env

            set_random_seed(seed)
            return _init

        vec_env = SubprocVecEnv([make_env("CartPole-v1", i) for i in range(3)])
        model = PPO("MlpPolicy", vec_env, n_steps=16, batch_size=24)
        model.learn(total_timesteps=100)
        assert model.num_timesteps == 144 and model.n_envs == 3
        vec_env.close()
    """,
    "off_policy_in_several_environments": """
        from {library} import SAC
        from stable_baselines3.common.env_util import make_vec_env

        vec_env = make_vec_env("Pendulum-v1", n_envs=4, seed=0)
        kwargs = dict(policy_kwargs=dict(net_arch=[16]), learning_starts=64, batch_size=32)
        model = SAC("MlpPolicy", vec_env, train_freq=1, gradient_steps=-1, **kwargs)
        model.learn(total_timesteps=200)
        assert model.num_timesteps == 200
    """,
    "dict_observations": """
        from {library} import PPO
        from stable_baselines3.common.envs import SimpleMultiObsEnv

        env = SimpleMultiObsEnv(random_start=False)
        model = PPO("MultiInputPolicy", env, n_steps=32, verbose=0)
        model.learn(total_timesteps=64)
        obs = model.get_env().reset()
        assert model.predict(obs)[0].shape == (1,)
    """,
    "callback_that_saves_the_best": """
        import os
        import gymnasium as gym
        import numpy as np
        from {library} import TD3
        from stable_baselines3.common.callbacks import BaseCallback
        from stable_baselines3.common.monitor import Monitor
        from stable_baselines3.common.noise import NormalActionNoise

        class SaveOnBestTrainingRewardCallback(BaseCallback):
            def __init__(self, check_freq, log_dir, verbose=1):
                super().__init__(verbose)
                self.check_freq = check_freq
                self.log_dir = log_dir
                self.save_path = os.path.join(log_dir, "best_model")
                self.best_mean_reward = -np.inf

            def _on_step(self):
                if self.n_calls % self.check_freq == 0:
                    episodes = self.model.ep_info_buffer
                    if len(episodes) > 0:
                        mean_reward = np.mean([episode["r"] for episode in episodes])
                        if mean_reward > self.best_mean_reward:
                            self.best_mean_reward = mean_reward
                            self.model.save(self.save_path)
                return True

        log_dir = "log"
        os.makedirs(log_dir, exist_ok=True)
        env = Monitor(gym.make("Pendulum-v1"), log_dir)
        n_actions = env.action_space.shape[-1]
        noise = NormalActionNoise(mean=np.zeros(n_actions), sigma=0.1 * np.ones(n_actions))
        kwargs = dict(policy_kwargs=dict(net_arch=[16]), batch_size=32)
        model = TD3("MlpPolicy", env, action_noise=noise, verbose=0, **kwargs)
        callback = SaveOnBestTrainingRewardCallback(check_freq=250, log_dir=log_dir)
        model.learn(total_timesteps=500, callback=callback)
        assert os.path.exists(os.path.join(log_dir, "best_model.zip"))
        assert os.path.exists(os.path.join(log_dir, "monitor.csv"))
        env.close()
        assert callback.best_mean_reward < 0
    """,
    "vec_normalize": """
        import os
        from {library} import PPO
        from stable_baselines3.common.env_util import make_vec_env
        from stable_baselines3.common.vec_env import VecNormalize

        vec_env = make_vec_env("Pendulum-v1", n_envs=1)
        vec_env = VecNormalize(vec_env, norm_obs=True, norm_reward=True, clip_obs=10.0)
        model = PPO("MlpPolicy", vec_env, n_steps=64)
        model.learn(total_timesteps=256)
        model.save("ppo_pendulum")
        vec_env.save("vec_normalize.pkl")
        del model, vec_env

        vec_env = make_vec_env("Pendulum-v1", n_envs=1)
        vec_env = VecNormalize.load("vec_normalize.pkl", vec_env)
        vec_env.training = False
        vec_env.norm_reward = False
        model = PPO.load("ppo_pendulum", env=vec_env)
        assert vec_env.obs_rms.count > 250
        assert model.get_vec_normalize_env() is vec_env
    """,
    "hindsight": """
        from {library} import DDPG, DQN, SAC, TD3
        from stable_baselines3 import HerReplayBuffer
        from stable_baselines3.common.envs import BitFlippingEnv
        from stable_baselines3.her.goal_selection_strategy import GoalSelectionStrategy

        model_class = DQN
        env = BitFlippingEnv(n_bits=4, continuous=False, max_steps=4)
        model = model_class(
            "MultiInputPolicy",
            env,
            replay_buffer_class=HerReplayBuffer,
            replay_buffer_kwargs=dict(
                n_sampled_goal=4,
                goal_selection_strategy=GoalSelectionStrategy.FUTURE,
            ),
            learning_starts=32,
            verbose=0,
        )
        model.learn(200)
        model.save("her_bit_env")
        model = model_class.load("her_bit_env", env=env)
        obs, info = env.reset()
        for _ in range(4):
            action, _ = model.predict(obs, deterministic=True)
            obs, reward, terminated, truncated, info = env.step(action)
    """,
    "learning_rate_schedule": """
        from typing import Callable
        from {library} import PPO

        def linear_schedule(initial_value: float) -> Callable[[float], float]:
            def func(progress_remaining: float) -> float:
                return progress_remaining * initial_value

            return func

        model = PPO("MlpPolicy", "CartPole-v1", n_steps=32, learning_rate=linear_schedule(0.001))
        model.learn(total_timesteps=128)
        model.learn(total_timesteps=64, reset_num_timesteps=True)
        assert model.num_timesteps == 64
        model.save("scheduled")
        model = PPO.load("scheduled")
        assert abs(model.learning_rate(0.5) - 0.0005) < 1e-9
    """,
    "saving_the_replay_buffer": """
        from {library} import SAC
        from stable_baselines3.common.evaluation import evaluate_policy

        kwargs = dict(policy_kwargs=dict(net_arch=[16]), batch_size=32)
        model = SAC("MlpPolicy", "Pendulum-v1", verbose=0, learning_rate=1e-3, **kwargs)
        model.learn(total_timesteps=150)
        model.save("sac_pendulum")
        model.save_replay_buffer("sac_replay_buffer")
        loaded_model = SAC.load("sac_pendulum")
        loaded_model.load_replay_buffer("sac_replay_buffer")
        assert loaded_model.replay_buffer.size() == 150

        policy = model.policy
        env = model.get_env()
        mean_reward, std_reward = evaluate_policy(policy, env, n_eval_episodes=1)
        assert mean_reward < 0
    """,
    "modifying_parameters": """
        import numpy as np
        import torch as th
        from {library} import A2C
        from stable_baselines3.common.evaluation import evaluate_policy

        def mutate(params):
            return dict((n, p + 0.1 * th.randn_like(p)) for n, p in params.items())

        model = A2C("MlpPolicy", "CartPole-v1", ent_coef=0.0, policy_kwargs={{"net_arch": [8]}})
        model.learn(total_timesteps=100)
        mean_params = dict(
            (key, value)
            for key, value in model.policy.state_dict().items()
            if ("policy" in key or "shared_net" in key or "action" in key)
        )
        assert "action_net.weight" in mean_params
        vec_env = model.get_env()
        population = []
        for _ in range(3):
            candidate = mutate(mean_params)
            model.policy.load_state_dict(candidate, strict=False)
            fitness, _ = evaluate_policy(model, vec_env, n_eval_episodes=1)
            population.append((candidate, fitness))
        best = max(population, key=lambda pair: pair[1])[0]
        model.policy.load_state_dict(best, strict=False)
        now = model.get_parameters()["policy"]
        assert th.equal(now["action_net.bias"], best["action_net.bias"])
        model.set_parameters(model.get_parameters())
    """,
    "own_logger": """
        import os
        from {library} import A2C
        from stable_baselines3.common.logger import configure

        new_logger = configure("sb3_log", ["csv"])
        model = A2C("MlpPolicy", "CartPole-v1", verbose=0)
        model.set_logger(new_logger)
        model.learn(500, log_interval=20)
        with open(os.path.join("sb3_log", "progress.csv")) as file:
            rows = file.read().splitlines()
        new_logger.close()
        names = rows[0].split(",")
        assert len(rows) == 6
        for name in ("time/total_timesteps", "rollout/ep_rew_mean", "train/value_loss"):
            assert name in names, names
    """,
    "tensorboard": """
        import os
        import numpy as np
        from {library} import SAC
        from stable_baselines3.common.callbacks import BaseCallback

        class TensorboardCallback(BaseCallback):
            def _on_step(self) -> bool:
                self.logger.record("random_value", np.random.random())
                return True

        kwargs = dict(policy_kwargs=dict(net_arch=[8]), batch_size=16, learning_starts=20)
        model = SAC("MlpPolicy", "Pendulum-v1", tensorboard_log="tb", verbose=0, **kwargs)
        model.learn(50, callback=TensorboardCallback(), tb_log_name="first_run")
        model.learn(50, reset_num_timesteps=False, tb_log_name="first_run")
        assert os.listdir(os.path.join("tb", "first_run_1"))
        assert model.num_timesteps == 100
    """,
    "evaluation_callback": """
        import os
        import gymnasium as gym
        import numpy as np
        from {library} import SAC
        from stable_baselines3.common.callbacks import (
            CallbackList,
            CheckpointCallback,
            EvalCallback,
            StopTrainingOnRewardThreshold,
        )
        from stable_baselines3.common.monitor import Monitor

        eval_env = Monitor(gym.make("Pendulum-v1"))
        stop = StopTrainingOnRewardThreshold(reward_threshold=-1e9, verbose=0)
        eval_callback = EvalCallback(
            eval_env,
            callback_on_new_best=stop,
            best_model_save_path="logs",
            log_path="logs",
            eval_freq=50,
            n_eval_episodes=1,
            deterministic=True,
            render=False,
            verbose=0,
        )
        checkpoints = CheckpointCallback(save_freq=20, save_path="checkpoints", name_prefix="m")
        kwargs = dict(policy_kwargs=dict(net_arch=[8]), batch_size=16, learning_starts=20)
        model = SAC("MlpPolicy", "Pendulum-v1", **kwargs)
        model.learn(5000, callback=CallbackList([checkpoints, eval_callback]))
        assert model.num_timesteps == 50
        assert sorted(os.listdir("checkpoints")) == ["m_20_steps.zip", "m_40_steps.zip"]
        assert np.load("logs/evaluations.npz")["timesteps"].tolist() == [50]
        assert SAC.load("logs/best_model").num_timesteps == 50
    """,
    "other_callbacks": """
        from {library} import A2C, PPO
        from stable_baselines3.common.callbacks import (
            EveryNTimesteps,
            StopTrainingOnMaxEpisodes,
        )

        calls = []

        def count(locals_, globals_):
            calls.append(locals_["self"].num_timesteps)
            return True

        model = A2C("MlpPolicy", "CartPole-v1", verbose=0)
        model.learn(50, callback=count)
        assert calls == list(range(1, 51))

        event = EveryNTimesteps(n_steps=100, callback=StopTrainingOnMaxEpisodes(max_episodes=10**6))
        model.learn(200, callback=[event, StopTrainingOnMaxEpisodes(max_episodes=2, verbose=0)])
        assert 1 <= len(model.ep_info_buffer) <= 2
    """,
    "custom_environment": """
        import gymnasium as gym
        import numpy as np
        from gymnasium import spaces
        from {library} import A2C
        from stable_baselines3.common.env_checker import check_env
        from stable_baselines3.common.env_util import make_vec_env

        class GoLeftEnv(gym.Env):
            metadata = {{"render_modes": ["console"]}}
            LEFT, RIGHT = 0, 1

            def __init__(self, grid_size=6, render_mode="console"):
                super().__init__()
                self.render_mode = render_mode
                self.grid_size = grid_size
                self.agent_pos = grid_size - 1
                self.action_space = spaces.Discrete(2)
                self.observation_space = spaces.Box(0, grid_size, shape=(1,), dtype=np.float32)

            def reset(self, seed=None, options=None):
                super().reset(seed=seed, options=options)
                self.agent_pos = self.grid_size - 1
                return np.array([self.agent_pos]).astype(np.float32), {{}}

            def step(self, action):
                self.agent_pos += -1 if action == self.LEFT else 1
                self.agent_pos = np.clip(self.agent_pos, 0, self.grid_size)
                terminated = bool(self.agent_pos == 0)
                reward = 1 if terminated else 0
                obs = np.array([self.agent_pos]).astype(np.float32)
                return obs, reward, terminated, False, {{}}

            def render(self):
                pass

            def close(self):
                pass

        check_env(GoLeftEnv(), warn=True)
        vec_env = make_vec_env(GoLeftEnv, n_envs=1, env_kwargs=dict(grid_size=6))
        model = A2C("MlpPolicy", vec_env, verbose=0, seed=0).learn(3000)
        obs = vec_env.reset()
        for n_steps in range(20):
            action, _ = model.predict(obs, deterministic=True)
            obs, reward, done, info = vec_env.step(action)
            if done:
                break
        assert done and n_steps == 4
    """,
    "ddpg": """
        import numpy as np
        from {library} import DDPG
        from stable_baselines3.common.noise import OrnsteinUhlenbeckActionNoise

        noise = OrnsteinUhlenbeckActionNoise(mean=np.zeros(1), sigma=0.1 * np.ones(1))
        kwargs = dict(policy_kwargs=dict(net_arch=[16]), batch_size=32)
        model = DDPG("MlpPolicy", "Pendulum-v1", action_noise=noise, verbose=0, **kwargs)
        model.learn(total_timesteps=200, log_interval=10)
        model.save("ddpg_pendulum")
        model = DDPG.load("ddpg_pendulum")
        action, _ = model.predict(np.zeros(3, np.float32))
        assert action.shape == (1,) and abs(action) <= 2
    """,
    "episodes_between_updates": """
        from {library} import TD3

        kwargs = dict(policy_kwargs=dict(net_arch=[16]), batch_size=32)
        model = TD3(
            "MlpPolicy",
            "Pendulum-v1",
            train_freq=(1, "episode"),
            gradient_steps=10,
            learning_starts=100,
            **kwargs,
        )
        model.learn(550)
        assert model.num_timesteps == 600
    """,
    "state_dependent_exploration": """
        from {library} import PPO, SAC

        PPO("MlpPolicy", "Pendulum-v1", use_sde=True, sde_sample_freq=4, n_steps=32).learn(64)
        kwargs = dict(policy_kwargs=dict(net_arch=[8]), batch_size=16, learning_starts=20)
        SAC("MlpPolicy", "Pendulum-v1", use_sde=True, **kwargs).learn(40)
    """,
    "setting_another_environment": """
        from {library} import PPO
        from stable_baselines3.common.env_util import make_vec_env

        model = PPO("MlpPolicy", make_vec_env("CartPole-v1", 2), n_steps=16, batch_size=16)
        model.learn(32)
        other = make_vec_env("CartPole-v1", 2)
        model.set_env(other)
        assert model.get_env() is other
        model.learn(32, reset_num_timesteps=False)
        assert model.num_timesteps == 64
        model.save("moved")
        assert PPO.load("moved", env=make_vec_env("CartPole-v1", 3)).learn(48).n_envs == 3
    """,
}
